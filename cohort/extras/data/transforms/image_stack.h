/// ImageStack: the images of a batch, each written at its place in the batch, so that none is copied twice. The result and the
/// errors are those of collate() with the same images.
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
  /// Makes a stack for at most `max_images` images.
  explicit ImageStack(int64_t max_images) : max_images_(max_images) {}

  /// Returns the memory of the next image, which counts as written: contiguous, float32. Null if the images before are of another
  /// kind; then call add().
  float* next(at::IntArrayRef sizes);
  void add(const at::Tensor& image);

  /// Returns [images, ...]. Throws like collate(), for example if sizes differ. Throws c10::IndexError without images.
  at::Tensor join();

 private:
  bool makes_room(at::IntArrayRef sizes, at::ScalarType dtype);
  void become_list();

  int64_t max_images_;
  int64_t num_images_ = 0;
  at::Tensor rows_;  ///< the images, as long as all are of one kind
  std::vector<at::Tensor> list_;
};

}  // namespace cohort::data
