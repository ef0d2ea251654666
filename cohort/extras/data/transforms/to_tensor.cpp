#include "cohort/extras/data/transforms/to_tensor.h"

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "cohort/extras/data/transforms/image.h"

namespace cohort::data {

at::Tensor ToTensor::operator()(const at::Tensor& image) const {
  check_image(image, "ToTensor");
  if (image.is_floating_point()) return image;
  return image.to(at::TensorOptions(at::kFloat), /*non_blocking=*/false, /*copy=*/false, at::MemoryFormat::Contiguous)
      .div_(255);
}

Normalize::Normalize(std::vector<double> mean, std::vector<double> std) : mean_(std::move(mean)), std_(std::move(std)) {
  TORCH_CHECK_VALUE(!mean_.empty() && !std_.empty(), "[cohort] Normalize needs at least one mean and one std");
  TORCH_CHECK_VALUE(std::find(std_.begin(), std_.end(), 0.0) == std_.end(),
                    "std evaluated to zero after conversion, leading to division by zero.");
}

bool Normalize::takes(int64_t num_channels) const {
  const auto fits = [&](const std::vector<double>& values) {
    return values.size() == 1 || static_cast<int64_t>(values.size()) == num_channels;
  };
  return fits(mean_) && fits(std_);
}

at::Tensor Normalize::operator()(const at::Tensor& image) const {
  check_image(image, "Normalize");
  TORCH_CHECK_TYPE(image.is_floating_point(), "Input tensor should be a float tensor. Got ", image.scalar_type(), ".");
  const auto numbers = [&](const std::vector<double>& values, const char* name) {
    const auto count = static_cast<int64_t>(values.size());
    TORCH_CHECK_VALUE(count == 1 || count == image.size(0), "[cohort] Normalize has ", count, " values of ", name,
                      " for an image of ", image.size(0), " channels");
    return at::tensor(values, image.options()).view({-1, 1, 1});
  };
  return image.sub(numbers(mean_, "mean")).div_(numbers(std_, "std"));
}

}  // namespace cohort::data
