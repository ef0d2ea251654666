// The process of one side of `dataloader`: our DataLoader, or the floor. Commands: "copy NAME CASE WORKERS BATCH IMAGES FOLDER"
// makes a reader; "verify NAME" answers with an epoch's number of images, sum of labels and mean; "run NAME 0 EPOCHS" with the
// microseconds per image; "hold NAME" takes half of an epoch, waits until workers have read ahead, and answers with the pid;
// "finish NAME" takes the rest.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "benchmarks/dataloader/loader_case.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/serve_commands.h"
#include "cohort/data/datasets/tensor_dataset.h"
#include "cohort/data/loader/data_loader.h"
#include "cohort/extras/data/datasets/image_folder.h"
#include "cohort/extras/data/transforms/crop.h"
#include "cohort/extras/data/transforms/flip.h"
#include "cohort/extras/data/transforms/to_tensor.h"
#include "cohort/extras/data/transforms/transformed_dataset.h"

namespace cohort::bench {
namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kFolderSide = 224;
constexpr int64_t kSampleNumbers = 3 * kSide * kSide;

struct LoadedBatch {
  at::Tensor images;
  at::Tensor labels;
};

// Reads epochs of batches from any source.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual void begin_epoch() = 0;
  virtual std::optional<LoadedBatch> next() = 0;
};

template <typename Dataset>
class LoaderReader final : public Reader {
 public:
  LoaderReader(Dataset dataset, int num_workers, int64_t batch_size)
      : loader_(std::move(dataset), {.batch_size = batch_size,
                                     .shuffle = true,
                                     .num_workers = num_workers,
                                     .persistent_workers = num_workers > 0}) {}
  void begin_epoch() override {
    epoch_.reset();
    loader_.dataset().set_epoch(num_epochs_++);
    epoch_.emplace(loader_.start());
  }
  std::optional<LoadedBatch> next() override {
    auto batch = epoch_->next();
    if (!batch) return std::nullopt;
    return LoadedBatch{std::get<0>(*batch), std::get<1>(*batch)};
  }

 private:
  data::DataLoader<Dataset> loader_;
  std::optional<data::Epoch<typename data::DataLoader<Dataset>::Batch>> epoch_;
  int64_t num_epochs_ = 0;
};

// The floor of the CIFAR-like cases: copies each image of a batch, as float32, into a new batch.
class CopyReader final : public Reader {
 public:
  CopyReader(int64_t num_images, int64_t batch_size)
      : images_(at::rand({num_images, 3, kSide, kSide})), order_(at::randperm(num_images)), batch_size_(batch_size) {}
  void begin_epoch() override { num_taken_ = 0; }
  std::optional<LoadedBatch> next() override {
    const int64_t count = std::min(batch_size_, images_.size(0) - num_taken_);
    if (count == 0) return std::nullopt;
    const at::Tensor batch = at::empty({count, 3, kSide, kSide});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = order_.const_data_ptr<int64_t>()[num_taken_ + i];
      std::memcpy(batch.mutable_data_ptr<float>() + i * kSampleNumbers,
                  images_.const_data_ptr<float>() + index * kSampleNumbers, kSampleNumbers * sizeof(float));
    }
    num_taken_ += count;
    return LoadedBatch{batch, at::empty({0})};
  }

 private:
  at::Tensor images_;
  at::Tensor order_;
  int64_t batch_size_;
  int64_t num_taken_ = 0;
};

// The floor of the JPEGs: decodes each one and resizes a part of it.
class DecodeReader final : public Reader {
 public:
  DecodeReader(const std::string& folder, int64_t batch_size) : folder_(folder), batch_size_(batch_size) {}
  void begin_epoch() override {
    num_taken_ = 0;
    ++num_epochs_;
  }
  std::optional<LoadedBatch> next() override {
    const int64_t end = std::min(num_taken_ + batch_size_, folder_.size());
    if (num_taken_ == end) return std::nullopt;
    const LoadedBatch batch{at::empty({end - num_taken_, 0}), at::empty({0})};
    for (; num_taken_ < end; ++num_taken_) {
      data::SampleRandom random(0, num_epochs_, num_taken_);
      (void)data::RandomResizedCrop(kFolderSide)(folder_.get(num_taken_).first, random);
    }
    return batch;
  }

 private:
  data::ImageFolder folder_;
  int64_t batch_size_;
  int64_t num_taken_ = 0;
  int64_t num_epochs_ = 0;
};

data::Normalize usual_normalize() { return data::Normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}); }

// The same as in dataloader_rank.py.
data::TensorDataset<2> cifar_like(int64_t num_images) {
  const at::Tensor numbers = at::arange(num_images * kSampleNumbers, at::kLong);
  const at::Tensor bytes = (numbers * 2654435761).__irshift__(20).remainder_(256).to(at::kByte);
  return data::TensorDataset(bytes.view({num_images, 3, kSide, kSide}),
                             (at::arange(num_images, at::kLong) * 7).remainder_(10));
}

template <typename Dataset>
std::unique_ptr<Reader> make_loader(Dataset dataset, std::vector<data::Transform> transforms, const LoaderCase& what) {
  data::TransformedDataset transformed(std::move(dataset), data::Compose(std::move(transforms)));
  return std::make_unique<LoaderReader<decltype(transformed)>>(std::move(transformed), what.num_workers,
                                                               what.batch_size);
}

std::unique_ptr<Reader> make_reader(const LoaderCase& what) {
  if (what.name == "cifar") {
    return make_loader(
        cifar_like(what.num_images),
        {data::RandomCrop(kSide, {.padding = {4}}), data::RandomHorizontalFlip(), data::ToTensor(), usual_normalize()},
        what);
  }
  if (what.name == "cifar-plain") {
    return make_loader(cifar_like(what.num_images), {data::ToTensor(), data::RandomHorizontalFlip()}, what);
  }
  if (what.name == "jpeg") {
    return make_loader(
        data::ImageFolder(what.folder),
        {data::RandomResizedCrop(kFolderSide), data::RandomHorizontalFlip(), data::ToTensor(), usual_normalize()},
        what);
  }
  if (what.name == "jpeg-floor") return std::make_unique<DecodeReader>(what.folder, what.batch_size);
  if (what.name == "cifar-floor") return std::make_unique<CopyReader>(what.num_images, what.batch_size);
  throw std::runtime_error(fmt::format("there is no case \"{}\"", what.name));
}

class LoaderRank {
 public:
  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb, name;
    words >> verb >> name;
    if (verb == "copy") {
      LoaderCase what;
      words >> what.name >> what.num_workers >> what.batch_size >> what.num_images >> what.folder;
      readers_[name] = make_reader(what);
      return "ok";
    }
    Reader& reader = *readers_.at(name);
    if (verb == "verify") return verify(reader);
    if (verb == "hold") return hold(reader);
    if (verb == "finish") return finish(reader);
    int num_warm = 0, num_epochs = 0;
    words >> num_warm >> num_epochs;
    return run(reader, num_epochs);
  }

 private:
  static std::string verify(Reader& reader) {
    int64_t count = 0, labels = 0;
    double total = 0;
    reader.begin_epoch();
    while (const auto batch = reader.next()) {
      count += batch->images.size(0);
      labels += batch->labels.sum().item<int64_t>();
      total += batch->images.mean().item<double>() * static_cast<double>(batch->images.size(0));
    }
    return fmt::format("{} {} {:.6f}", count, labels, total / static_cast<double>(count));
  }

  static std::string run(Reader& reader, int num_epochs) {
    const auto begin = std::chrono::steady_clock::now();
    int64_t count = 0;
    for (int epoch = 0; epoch < num_epochs; ++epoch) {
      reader.begin_epoch();
      while (const auto batch = reader.next()) count += batch->images.size(0);
    }
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
    return fmt::format("{:.6f}", elapsed.count() / static_cast<double>(count));
  }

  static std::string hold(Reader& reader) {
    int64_t num_batches = 0;
    for (reader.begin_epoch(); reader.next();) ++num_batches;
    reader.begin_epoch();
    for (int64_t i = 0; i < std::max<int64_t>(1, num_batches / 2); ++i) (void)reader.next();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return std::to_string(::getpid());
  }

  static std::string finish(Reader& reader) {
    while (reader.next()) {
    }
    return "ok";
  }

  std::map<std::string, std::unique_ptr<Reader>> readers_;
};

}  // namespace

int run_dataloader_rank(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  LoaderRank rank;
  serve_commands(arguments.at(1), [&](const std::string& command) { return rank.answer(command); });
  return 0;
}

}  // namespace cohort::bench
