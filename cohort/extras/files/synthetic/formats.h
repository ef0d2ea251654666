/// Makes the bytes of dataset files in the official formats. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/extras/files/sets/cifar_records.h"

namespace cohort::files {

/// MNIST's format IDX, with byte elements. `shape` is [images, rows, columns], or [labels].
std::string idx_bytes(const std::vector<uint32_t>& shape, std::string_view values);

/// CIFAR's binary records. `coarse_labels` is empty (CIFAR-10), or has a label for each image (CIFAR-100).
std::string cifar_record_bytes(const CifarImages& images, const std::vector<int64_t>& coarse_labels);

/// A CIFAR batch as Python 2 and NumPy wrote it in 2009, protocol 2: a dict with "data", a uint8 array [N, 3072], and "labels"
/// (CIFAR-10), or "fine_labels" and "coarse_labels" (CIFAR-100).
std::string cifar_pickle_bytes(const CifarImages& images, const std::vector<int64_t>& coarse_labels);

/// A pickled dict of lists of texts, like CIFAR's batches.meta and meta.
struct NameList {
  std::string key;
  std::vector<std::string> names;
};
std::string name_lists_pickle_bytes(const std::vector<NameList>& lists);

}  // namespace cohort::files
