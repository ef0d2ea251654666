/// The binary version of CIFAR: records of one or two bytes of labels and 3072 of an image (red, green and blue planes of
/// 32 x 32), as https://www.cs.toronto.edu/~kriz/cifar.html describes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/input/input_file.h"

namespace cohort::files {

constexpr int64_t kCifarImageBytes = 3 * 32 * 32;

struct CifarImages {
  /// kCifarImageBytes per image.
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;
};

struct CifarLayout {
  /// Label bytes before each image: 1 in CIFAR-10, 2 in CIFAR-100 (the coarse label, then the fine one).
  int num_label_bytes = 1;
  /// The index of the byte with the label.
  int label_byte = 0;
  int num_classes = 10;
};

/// Adds the records of a file to `images`. Errors: an incomplete record at the end; a label that is not below num_classes.
base::Result<void> read_cifar_records(const InputFile& file, const CifarLayout& layout, CifarImages& images);

/// Returns the names of classes, one per line; skips empty lines. Errors: more or fewer names than `num_classes`.
base::Result<std::vector<std::string>> read_class_names(const InputFile& file, int num_classes);

}  // namespace cohort::files
