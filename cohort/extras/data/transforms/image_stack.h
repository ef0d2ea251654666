/// ImageStack: the images of a batch, each written where the batch has it, so that none is copied twice. What comes out is what
/// collate() makes of the same images, errors included.
///
/// Thread-safety: none; one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "cohort/export.h"

namespace cohort::data {

class COHORT_API ImageStack {
 public:
  /// For at most so many images.
  explicit ImageStack(int64_t max_images) : max_images_(max_images) {}

  /// Memory for the next image, which counts as written: contiguous, float32. Null: the images before are of another kind; add()
  /// it.
  float* next(at::IntArrayRef sizes);
  void add(const at::Tensor& image);

  /// [images, ...]. Throws as collate() does, so not for images of different sizes. Throws c10::IndexError for none.
  at::Tensor join();

 private:
  bool makes_room(at::IntArrayRef sizes, at::ScalarType dtype);
  void become_list();

  int64_t max_images_;
  int64_t num_images_ = 0;
  at::Tensor rows_;  ///< those images, as long as all of them are alike
  std::vector<at::Tensor> list_;
};

}  // namespace cohort::data
