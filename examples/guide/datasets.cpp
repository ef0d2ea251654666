// The programs of docs/guide/datasets.md (tests/tools/guide_test.py compares them). GUIDE_DATA is a folder with the datasets of
// `cohort-data make`: mnist, cifar10, tokens and csv.
#include <cohort/comm/group/process_group.h>
#include <cohort/data/datasets/token_file_dataset.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/data/samplers/distributed_sampler.h>
#include <cohort/extras/data/augmentation/mixup.h>
#include <cohort/extras/data/datasets/cifar.h>
#include <cohort/extras/data/datasets/csv_dataset.h>
#include <cohort/extras/data/datasets/idx_dataset.h>
#include <cohort/extras/data/datasets/image_folder.h>
#include <cohort/extras/data/datasets/numpy_dataset.h>
#include <cohort/extras/data/datasets/numpy_files.h>
#include <cohort/extras/data/transforms/compose.h>
#include <cohort/extras/data/transforms/crop.h>
#include <cohort/extras/data/transforms/flip.h>
#include <cohort/extras/data/transforms/to_tensor.h>
#include <cohort/extras/data/transforms/transformed_dataset.h>
#include <torch/types.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "guide.h"

namespace guide {
namespace {

void load_cifar(const std::string& root) {
  using namespace cohort::data;
  const CIFAR10 images(root, {.train = true});  // .download = true gets the official dataset
  const TransformedDataset dataset(images,
                                   Compose({RandomCrop(32, {.padding = {4}}), RandomHorizontalFlip(), ToTensor(),
                                            Normalize({0.491, 0.482, 0.447}, {0.247, 0.243, 0.262})}));
  const auto sampler = std::make_shared<DistributedSampler>(dataset.size());
  const DataLoader loader(dataset, {.batch_size = 128, .sampler = sampler, .num_workers = 2});
  for (int epoch = 0; epoch < 2; ++epoch) {
    sampler->set_epoch(epoch);
    dataset.set_epoch(epoch);  // new crops in each epoch
    for (const auto& [inputs, labels] : loader) {
      TORCH_CHECK(inputs.size(1) == 3 && inputs.size(0) == labels.size(0));
    }
  }
}

void load_digits(const std::string& root) {
  const cohort::data::MNIST digits(root, {.train = true});
  const auto [image, label] = digits.get(0);  // uint8 [1, 28, 28] and its digit
  TORCH_CHECK(image.size(2) == 28 && label < 10);
}

void load_images(const std::string& root) {
  using namespace cohort::data;
  const ImageFolder folder(root, {.decode_size = 224});  // root/cat/1.jpg, root/dog/a/2.png, ...
  const TransformedDataset dataset(folder, Compose({RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor()}));
  const DataLoader loader(dataset, {.batch_size = 64, .shuffle = true, .num_workers = 2, .skip_unreadable = true});
  for (const auto& [images, labels] : loader) {
    TORCH_CHECK(images.size(3) == 224 && labels.max().item<int64_t>() < 2);
  }
}

void load_arrays(const std::string& folder) {
  using namespace cohort::data;
  save_npy(folder + "/inputs.npy", torch::randn({100, 8}));
  save_npy(folder + "/targets.npy", torch::arange(100));
  const NumpyDataset dataset(folder + "/inputs.npy", folder + "/targets.npy");  // rows are read when they are needed
  const DataLoader loader(dataset, {.batch_size = 10, .shuffle = true});
  for (const auto& [inputs, targets] : loader) {
    TORCH_CHECK(inputs.size(1) == 8 && targets.size(0) == 10);
  }
  TORCH_CHECK(load_npy(folder + "/targets.npy").numel() == 100);
}

void load_table(const std::string& root) {
  using namespace cohort::data;
  const CsvDataset table(root + "/csv/train.csv", {.labels = {"label"}});
  TORCH_CHECK(table.features().size(1) == 8 && table.feature_names().front() == "x0");
  const DataLoader loader(CsvStream(root + "/csv/train.csv", {.labels = {"label"}}),
                          {.batch_size = 32});  // line by line
  for (const auto& [features, labels] : loader) {
    TORCH_CHECK(features.size(0) == labels.size(0));
  }
}

void load_tokens(const std::string& root) {
  using namespace cohort::data;
  const TokenFileDataset tokens(root + "/tokens/train.bin", {.context_length = 64, .vocab_size = 256});
  const DataLoader loader(tokens, {.batch_size = 8, .shuffle = true, .drop_last = true});
  for (const auto& [inputs, targets] : loader) {  // targets: the same tokens, one position later
    TORCH_CHECK(inputs.sizes() == targets.sizes());
  }
}

void mix_images(const at::Tensor& images, const at::Tensor& labels) {
  using namespace cohort::data;
  SampleRandom random(/*seed=*/7, /*epoch=*/0, /*index=*/0);  // for a whole batch, use its number as index
  const auto [inputs, targets] = MixUp({.num_classes = 10})(images, labels, random);
  TORCH_CHECK(inputs.sizes() == images.sizes() && targets.size(1) == 10);
}

void make_image_files(const std::string& folder) {
  for (const std::string name : {"cat", "dog"}) {
    std::filesystem::create_directories(folder + "/" + name);
    cohort::data::write_jpeg(torch::randint(256, {3, 300, 400}, torch::kByte), folder + "/" + name + "/1.jpg");
    cohort::data::write_png(torch::randint(256, {3, 240, 240}, torch::kByte), folder + "/" + name + "/2.png");
  }
}

}  // namespace

void run_datasets() {
  cohort::init_process_group();
  const char* const data = std::getenv("GUIDE_DATA");
  TORCH_CHECK(data != nullptr, "set GUIDE_DATA to the folder that cohort-data make has written to");
  const auto folder = std::filesystem::temp_directory_path() / ("cohort_guide_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  load_cifar(data);
  load_digits(data);
  load_table(data);
  load_tokens(data);
  load_arrays(folder.string());
  make_image_files((folder / "images").string());
  load_images((folder / "images").string());
  mix_images(torch::rand({4, 3, 8, 8}), torch::arange(4));
  std::filesystem::remove_all(folder);
  cohort::destroy_process_group();
}

}  // namespace guide
