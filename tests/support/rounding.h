/// How far apart two right ways to compute the same numbers may be, as on processors that add them up in another order.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <optional>

namespace cohort::test {

inline double epsilon_of(at::ScalarType dtype) {
  if (dtype == at::kDouble) return std::numeric_limits<double>::epsilon();
  if (dtype == at::kFloat) return std::numeric_limits<float>::epsilon();
  TORCH_CHECK(dtype == at::kHalf || dtype == at::kBFloat16, "no floating-point numbers: ", dtype);
  return dtype == at::kHalf ? std::numeric_limits<at::Half>::epsilon() : std::numeric_limits<at::BFloat16>::epsilon();
}

/// After so many operations in a row, each of which rounds numbers of up to `magnitude`. They go up as often as down, so that
/// their sum grows as the root of their number; four times that is for the one of many numbers that is the farthest off.
inline double rounding(at::ScalarType dtype, int64_t operations, double magnitude) {
  return 4 * epsilon_of(dtype) * std::sqrt(static_cast<double>(operations)) * magnitude;
}

inline double largest_of(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0.0 : tensor.detach().abs().max().item<double>();
}

/// Tensors of one dtype and shape. `magnitude`: of what is added up, as the whole tensor's where these are parts; else that of
/// the largest expected number.
inline bool are_rounded_alike(const at::Tensor& actual, const at::Tensor& expected, int64_t operations,
                              std::optional<double> magnitude = std::nullopt) {
  if (actual.scalar_type() != expected.scalar_type() || actual.sizes() != expected.sizes()) return false;
  const auto off = largest_of(actual.detach().to(at::kDouble) - expected.detach().to(at::kDouble));
  return off <= rounding(expected.scalar_type(), operations, magnitude ? *magnitude : largest_of(expected));
}

}  // namespace cohort::test
