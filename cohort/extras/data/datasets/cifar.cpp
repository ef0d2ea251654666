#include "cohort/extras/data/datasets/cifar.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "cohort/base/file/file.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/extras/data/datasets/cifar_batch.h"
#include "cohort/extras/data/datasets/download.h"
#include "cohort/extras/files/sets/cifar_records.h"
#include "cohort/extras/files/sets/digest.h"

namespace cohort::data {
namespace {

// The largest file of the official datasets has 154 MB.
constexpr size_t kMaxFileBytes = size_t{512} << 20;

struct CifarFile {
  std::string name;
  const char* md5;  // in Python's version
};

// The files of a dataset, and their content.
struct CifarFiles {
  const char* set;  // name in the catalog
  const char* binary_folder;
  const char* pickled_folder;
  std::vector<CifarFile> batches;
  CifarFile names;           // in Python's version
  std::string binary_names;  // in the binary version
  std::string names_key;
  std::string labels_key;
  files::CifarLayout layout;
};

CifarFiles cifar10_files(bool train) {
  CifarFiles set{.set = "cifar10",
                 .binary_folder = "cifar-10-batches-bin",
                 .pickled_folder = "cifar-10-batches-py",
                 .batches = {{"test_batch", "40351d587109b95175f43aff81a1287e"}},
                 .names = {"batches.meta", "5ff9c542aee3614f3951f8cda6e48888"},
                 .binary_names = "batches.meta.txt",
                 .names_key = "label_names",
                 .labels_key = "labels",
                 .layout = {.num_label_bytes = 1, .label_byte = 0, .num_classes = 10}};
  if (train) {
    set.batches = {{"data_batch_1", "c99cafc152244af753f735de768cd75f"},
                   {"data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"},
                   {"data_batch_3", "54ebc095f3ab1f0389bbae665268c751"},
                   {"data_batch_4", "634d18415352ddfa80567beed471001a"},
                   {"data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"}};
  }
  return set;
}

CifarFiles cifar100_files(bool train, bool coarse) {
  const std::string kind = coarse ? "coarse" : "fine";
  CifarFiles set{.set = "cifar100",
                 .binary_folder = "cifar-100-binary",
                 .pickled_folder = "cifar-100-python",
                 .batches = {{"test", "f0ef6b0ae62326f3e7ffdfab6717acfc"}},
                 .names = {"meta", "7973b15100ade9c7d40fb424638fde48"},
                 .binary_names = kind + "_label_names.txt",
                 .names_key = kind + "_label_names",
                 .labels_key = kind + "_labels",
                 .layout = {.num_label_bytes = 2, .label_byte = coarse ? 0 : 1, .num_classes = coarse ? 20 : 100}};
  if (train) set.batches = {{"train", "16019d7e3df5f24257cddd939b257f8d"}};
  return set;
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

// Copies the file, as shortening a mapped file would end the program.
std::string read_set_file(const std::string& path) { return comm::or_throw(base::read_file(path, kMaxFileBytes)); }

void check_digest(const std::string& path, const char* md5) {
  const std::string digest = comm::or_throw(files::file_digest(path, "MD5"));
  TORCH_CHECK(digest == md5, "[cohort] \"", path, "\" is not the published file: its MD5 is ", digest, ", not ", md5);
}

struct LoadedCifar {
  at::Tensor images;
  at::Tensor labels;
  std::vector<std::string> classes;
};

LoadedCifar load_binary(const std::string& folder, const CifarFiles& set) {
  files::CifarImages all;
  for (const auto& batch : set.batches) {
    const std::string path = folder + "/" + batch.name + ".bin";
    const std::string bytes = read_set_file(path);
    comm::or_throw(files::read_cifar_records(files::InputFile::view(path, bytes), set.layout, all));
  }
  const auto count = static_cast<int64_t>(all.labels.size());
  LoadedCifar loaded{at::empty({count, 3, 32, 32}, at::kByte), at::empty({count}, at::kLong), {}};
  std::memcpy(loaded.images.mutable_data_ptr(), all.pixels.data(), all.pixels.size());
  std::memcpy(loaded.labels.mutable_data_ptr(), all.labels.data(), all.labels.size() * sizeof(int64_t));
  const std::string path = folder + "/" + set.binary_names;
  const std::string names = read_set_file(path);
  const auto file = files::InputFile::view(path, names);
  loaded.classes = comm::or_throw(files::read_class_names(file, set.layout.num_classes));
  return loaded;
}

LoadedCifar load_pickled(const std::string& folder, const CifarFiles& set, bool check_integrity) {
  std::vector<at::Tensor> images;
  std::vector<at::Tensor> labels;
  for (const auto& batch : set.batches) {
    const std::string path = folder + "/" + batch.name;
    if (check_integrity) check_digest(path, batch.md5);
    auto [pixels, classes] =
        detail::read_pickled_batch(path, read_set_file(path), set.labels_key, set.layout.num_classes);
    images.push_back(std::move(pixels));
    labels.push_back(std::move(classes));
  }
  const std::string path = folder + "/" + set.names.name;
  if (check_integrity) check_digest(path, set.names.md5);
  return {at::cat(images).view({-1, 3, 32, 32}), at::cat(labels),
          detail::read_pickled_names(path, read_set_file(path), set.names_key, set.layout.num_classes)};
}

LoadedCifar load_cifar(const std::string& root, const CifarFiles& set, bool may_download, bool check_integrity) {
  const std::string binary = root + "/" + set.binary_folder;
  const std::string pickled = root + "/" + set.pickled_folder;
  if (may_download && !is_folder(binary) && !is_folder(pickled)) download(set.set, root);
  if (is_folder(binary)) {
    TORCH_CHECK(!check_integrity, "[cohort] digests are published for the files of \"", set.pickled_folder,
                "\" only, not for those of \"", binary, "\"\n  hint: leave check_integrity out");
    return load_binary(binary, set);
  }
  TORCH_CHECK(is_folder(pickled), "[cohort] neither \"", set.binary_folder, "\" nor \"", set.pickled_folder,
              "\" is in \"", root, "\"\n  hint: set .download = true, or run: cohort-data fetch ", set.set, " --root ",
              root, "\n  hint: for a small synthetic dataset, run: cohort-data make ", set.set, " --root ", root);
  return load_pickled(pickled, set, check_integrity);
}

}  // namespace

CifarImageDataset::Example CifarImageDataset::get(int64_t index) const {
  const Example batch = get_batch({index});
  return {batch.first.squeeze(0), batch.second.squeeze(0)};
}

CifarImageDataset::Example CifarImageDataset::get_batch(const std::vector<int64_t>& indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  Example batch{at::empty({count, 3, 32, 32}, at::kByte), at::empty({count}, at::kLong)};
  auto* pixels = batch.first.mutable_data_ptr<uint8_t>();
  auto* labels = batch.second.mutable_data_ptr<int64_t>();
  const auto* const all_pixels = images_.const_data_ptr<uint8_t>();
  const auto* const all_labels = labels_.const_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size(), "[cohort] image ", index, " is out of range for a set of ", size());
    std::memcpy(pixels, all_pixels + index * files::kCifarImageBytes, files::kCifarImageBytes);
    pixels += files::kCifarImageBytes;
    *labels++ = all_labels[index];
  }
  return batch;
}

CIFAR10::CIFAR10(const std::string& root, CIFAR10Options options) {
  auto loaded = load_cifar(root, cifar10_files(options.train), options.download, options.check_integrity);
  images_ = std::move(loaded.images);
  labels_ = std::move(loaded.labels);
  classes_ = std::move(loaded.classes);
}

CIFAR100::CIFAR100(const std::string& root, CIFAR100Options options) {
  const auto files = cifar100_files(options.train, options.coarse_labels);
  auto loaded = load_cifar(root, files, options.download, options.check_integrity);
  images_ = std::move(loaded.images);
  labels_ = std::move(loaded.labels);
  classes_ = std::move(loaded.classes);
}

}  // namespace cohort::data
