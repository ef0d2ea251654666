/// CIFAR10 and CIFAR100: small color images and their classes, as torchvision.datasets (cifar.py):
///
///     CIFAR10 train("data", {.train = true, .download = true});
///     DataLoader loader(train, {.batch_size = 128, .shuffle = true});
///     for (auto& [images, labels] : loader) ...      // uint8 [128, 3, 32, 32] and int64 [128]
///
/// The root folder contains the folder of an archive: the binary version (cifar-10-batches-bin, cifar-100-binary), or Python's
/// (cifar-10-batches-py, cifar-100-python), which is read without running code of its pickles. If there are both, the binary
/// version is read.
///
/// All images are in memory (150 MiB for the training set), which copies share.
/// Thread-safety: const; any number of threads may read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace cohort::data {

/// The base class of CIFAR10 and CIFAR100.
class COHORT_API CifarImageDataset {
 public:
  /// (image, label): uint8 [3, 32, 32] and int64 []. A copy.
  using Example = std::pair<at::Tensor, at::Tensor>;

  /// Throws c10::IndexError outside [0, size() - 1].
  Example get(int64_t index) const;
  /// Returns (images, labels): uint8 [indices, 3, 32, 32] and int64 [indices]. DataLoader uses it.
  Example get_batch(const std::vector<int64_t>& indices) const;
  int64_t size() const { return images_.size(0); }

  /// The name of each class, by label.
  const std::vector<std::string>& classes() const { return classes_; }
  /// All images, uint8 [size(), 3, 32, 32], for the mean and standard deviation of channels. Not a copy.
  const at::Tensor& images() const { return images_; }
  /// All labels, int64 [size()]. Not a copy.
  const at::Tensor& labels() const { return labels_; }

 protected:
  CifarImageDataset() = default;
  at::Tensor images_;
  at::Tensor labels_;
  std::vector<std::string> classes_;
};

struct CIFAR10Options {
  /// Whether to read the training set or the test set.
  bool train = true;
  /// Downloads the dataset if it is missing (download.h).
  bool download = false;
  /// Compares each file with torchvision's digest. Only for Python's version; a synthetic dataset never passes.
  bool check_integrity = false;
};

class COHORT_API CIFAR10 : public CifarImageDataset {
 public:
  /// Throws c10::Error for missing or damaged files, with the file, the position and what was expected there.
  explicit CIFAR10(const std::string& root, CIFAR10Options options = {});
};

struct CIFAR100Options {
  bool train = true;
  bool download = false;
  bool check_integrity = false;
  /// Labels with the 20 coarse classes instead of the 100 fine ones.
  bool coarse_labels = false;
};

class COHORT_API CIFAR100 : public CifarImageDataset {
 public:
  /// Throws like CIFAR10.
  explicit CIFAR100(const std::string& root, CIFAR100Options options = {});
};

}  // namespace cohort::data
