/// ToTensor and Normalize, as torchvision.transforms: convert bytes to a model's input.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::data {

/// Converts uint8 in 0 .. 255 to float32 in 0 .. 1, contiguous; returns a floating-point image unchanged.
class COHORT_API ToTensor {
 public:
  at::Tensor operator()(const at::Tensor& image) const;
  at::Tensor operator()(const at::Tensor& image, SampleRandom&) const { return (*this)(image); }
};

/// Computes (image - mean[channel]) / std[channel], with one number per channel or one for all.
class COHORT_API Normalize {
 public:
  /// Throws c10::ValueError for a standard deviation of zero.
  Normalize(std::vector<double> mean, std::vector<double> std);
  /// Throws c10::TypeError for an image that is not floating point, and c10::ValueError for a wrong number of channels.
  at::Tensor operator()(const at::Tensor& image) const;
  at::Tensor operator()(const at::Tensor& image, SampleRandom&) const { return (*this)(image); }

  /// The number of channels that it has numbers for; 1 means any number of channels.
  int64_t num_values() const { return static_cast<int64_t>(mean_.size() > std_.size() ? mean_.size() : std_.size()); }
  bool takes(int64_t num_channels) const;

 private:
  std::vector<double> mean_;
  std::vector<double> std_;
};

}  // namespace cohort::data
