/// Images for tests: different in every pixel's neighborhood, the same each time.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::test {

inline at::Tensor noise(int64_t channels, int64_t height, int64_t width, uint64_t seed = 0) {
  data::SampleRandom random(seed, 0, 0);
  at::Tensor image = at::empty({channels, height, width}, at::kByte);
  for (int64_t i = 0; i < image.numel(); ++i)
    image.mutable_data_ptr<uint8_t>()[i] = static_cast<uint8_t>(random.integer(0, 256));
  return image;
}

inline int64_t largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.to(at::kInt).sub(b.to(at::kInt)).abs().max().item<int64_t>();
}

}  // namespace cohort::test
