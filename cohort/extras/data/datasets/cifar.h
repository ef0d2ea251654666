/// CIFAR10 and CIFAR100: small colour images and their classes, as torchvision.datasets has them (cifar.py):
///
///     CIFAR10 train("data", {.train = true, .download = true});
///     DataLoader loader(train, {.batch_size = 128, .shuffle = true});
///     for (auto& [images, labels] : loader) ...      // uint8 [128, 3, 32, 32] and int64 [128]
///
/// Below the root folder lies what the archives hold: the binary version (cifar-10-batches-bin, cifar-100-binary), or Python's
/// (cifar-10-batches-py, cifar-100-python), which is read without running anything that its pickles say. Where both are, the
/// binary one is read.
///
/// All images are in memory (150 MiB for the training set). Copies share it.
/// Thread-safety: const; any number of threads may read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace cohort::data {

/// What CIFAR10 and CIFAR100 have in common.
class COHORT_API CifarImageDataset {
 public:
  /// (image, label): uint8 [3, 32, 32] and int64 []. A copy.
  using Example = std::pair<at::Tensor, at::Tensor>;

  /// Throws c10::IndexError outside [0, size() - 1].
  Example get(int64_t index) const;
  /// (images, labels): uint8 [indices, 3, 32, 32] and int64 [indices]; used by DataLoader.
  Example get_batch(const std::vector<int64_t>& indices) const;
  int64_t size() const { return images_.size(0); }

  /// The name of each class, by label.
  const std::vector<std::string>& classes() const { return classes_; }
  /// All of them, uint8 [size(), 3, 32, 32]: for the mean and deviation of channels. Not a copy.
  const at::Tensor& images() const { return images_; }
  /// int64 [size()]. Not a copy.
  const at::Tensor& labels() const { return labels_; }

 protected:
  CifarImageDataset() = default;
  at::Tensor images_;
  at::Tensor labels_;
  std::vector<std::string> classes_;
};

struct CIFAR10Options {
  /// The training set; false: the test set.
  bool train = true;
  /// Gets it if it is not there: download.h.
  bool download = false;
  /// Compares each file with the digest that torchvision knows. Only for Python's version, and never true of stand-ins.
  bool check_integrity = false;
};

class COHORT_API CIFAR10 : public CifarImageDataset {
 public:
  /// Throws c10::Error for files that are missing or damaged, with the file, the place and what was expected there.
  explicit CIFAR10(const std::string& root, CIFAR10Options options = {});
};

struct CIFAR100Options {
  bool train = true;
  bool download = false;
  bool check_integrity = false;
  /// The 20 coarse classes, instead of the 100 fine ones.
  bool coarse_labels = false;
};

class COHORT_API CIFAR100 : public CifarImageDataset {
 public:
  /// Throws as CIFAR10 does.
  explicit CIFAR100(const std::string& root, CIFAR100Options options = {});
};

}  // namespace cohort::data
