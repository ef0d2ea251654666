/// IdxDataset and MNIST: images and labels in IDX files, as torchvision.datasets.MNIST reads them.
///
///     MNIST train("data", {.train = true});       // data/MNIST/raw/train-images-idx3-ubyte, or the same with .gz
///     FashionMNIST test("data", {.train = false});
///     DataLoader loader(train, {.batch_size = 64, .shuffle = true});
///     for (auto& [images, labels] : loader) ...   // uint8 [64, 1, 28, 28], int64 [64]
///
/// The files are read into memory by the constructor (47 MB for MNIST's 60000 images); whoever changes them later changes
/// nothing here.
///
/// Thread-safety: const; any number of threads may read. Copies share the images.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace cohort::data {

class COHORT_API IdxDataset {
 public:
  /// An image in the type of its file, [1, height, width], and its label. Where elements of the file have another number of
  /// dimensions than two, their shape stays as it is.
  using Example = std::pair<at::Tensor, int64_t>;

  /// Plain files or .gz. Throws c10::Error for files that are missing, damaged or cut off, c10::ValueError unless there are
  /// as many labels as images, each label a whole number.
  IdxDataset(const std::string& images_path, const std::string& labels_path);

  /// The image is a tensor of its own. Throws c10::IndexError outside [0, size() - 1].
  Example get(int64_t index) const;
  /// (images, labels), [indices, ...] and int64 [indices]; used by DataLoader.
  std::pair<at::Tensor, at::Tensor> get_batch(const std::vector<int64_t>& indices) const;
  int64_t size() const { return images_.size(0); }

  /// All of them: [size, 1, height, width] and int64 [size].
  const at::Tensor& images() const { return images_; }
  const at::Tensor& labels() const { return labels_; }

 private:
  at::Tensor images_;
  at::Tensor labels_;
};

struct MNISTOptions {
  /// The training set; false: the test set.
  bool train = true;
  /// Gets it if it is not there: download.h.
  bool download = false;
};

/// The files are in ROOT/MNIST/raw, with the names of the official ones. Throws c10::Error when they are not there, and says
/// where they were looked for.
class COHORT_API MNIST : public IdxDataset {
 public:
  explicit MNIST(const std::string& root, MNISTOptions options = {});
  static std::vector<std::string> classes();

 protected:
  MNIST(const std::string& root, const std::string& name, const std::string& set, MNISTOptions options);
};

/// ROOT/FashionMNIST/raw.
class COHORT_API FashionMNIST : public MNIST {
 public:
  explicit FashionMNIST(const std::string& root, MNISTOptions options = {})
      : MNIST(root, "FashionMNIST", "fashion-mnist", options) {}
  static std::vector<std::string> classes();
};

/// ROOT/KMNIST/raw.
class COHORT_API KMNIST : public MNIST {
 public:
  explicit KMNIST(const std::string& root, MNISTOptions options = {}) : MNIST(root, "KMNIST", "kmnist", options) {}
  static std::vector<std::string> classes();
};

}  // namespace cohort::data
