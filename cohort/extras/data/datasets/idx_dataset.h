/// IdxDataset and MNIST: images and labels in IDX files, as torchvision.datasets.MNIST reads them.
///
///     MNIST train("data", {.train = true});       // data/MNIST/raw/train-images-idx3-ubyte, or the same with .gz
///     FashionMNIST test("data", {.train = false});
///     DataLoader loader(train, {.batch_size = 64, .shuffle = true});
///     for (auto& [images, labels] : loader) ...   // uint8 [64, 1, 28, 28], int64 [64]
///
/// The constructor reads the files into memory (47 MB for MNIST's 60000 images); later changes of the files have no effect.
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
  /// An image with the dtype of its file, [1, height, width], and its label. If elements of the file are not two-dimensional,
  /// they keep their shape.
  using Example = std::pair<at::Tensor, int64_t>;

  /// Reads plain files or .gz. Throws c10::Error for missing, damaged or incomplete files, and c10::ValueError unless there are
  /// as many labels as images, each an integer.
  IdxDataset(const std::string& images_path, const std::string& labels_path);

  /// Returns a new tensor with the image. Throws c10::IndexError outside [0, size() - 1].
  Example get(int64_t index) const;
  /// Returns (images, labels), [indices, ...] and int64 [indices]. DataLoader uses it.
  std::pair<at::Tensor, at::Tensor> get_batch(const std::vector<int64_t>& indices) const;
  int64_t size() const { return images_.size(0); }

  /// All images [size, 1, height, width], and all labels int64 [size].
  const at::Tensor& images() const { return images_; }
  const at::Tensor& labels() const { return labels_; }

 private:
  at::Tensor images_;
  at::Tensor labels_;
};

struct MNISTOptions {
  /// Whether to read the training set or the test set.
  bool train = true;
  /// Downloads the dataset if it is missing (download.h).
  bool download = false;
};

/// Reads files in ROOT/MNIST/raw with the official names. Throws c10::Error, with the searched paths, if they are missing.
class COHORT_API MNIST : public IdxDataset {
 public:
  explicit MNIST(const std::string& root, MNISTOptions options = {});
  static std::vector<std::string> classes();

 protected:
  MNIST(const std::string& root, const std::string& name, const std::string& set, MNISTOptions options);
};

/// Reads ROOT/FashionMNIST/raw.
class COHORT_API FashionMNIST : public MNIST {
 public:
  explicit FashionMNIST(const std::string& root, MNISTOptions options = {})
      : MNIST(root, "FashionMNIST", "fashion-mnist", options) {}
  static std::vector<std::string> classes();
};

/// Reads ROOT/KMNIST/raw.
class COHORT_API KMNIST : public MNIST {
 public:
  explicit KMNIST(const std::string& root, MNISTOptions options = {}) : MNIST(root, "KMNIST", "kmnist", options) {}
  static std::vector<std::string> classes();
};

}  // namespace cohort::data
