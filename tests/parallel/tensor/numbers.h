/// Numbers that every rank can draw for itself, and what tests of ranks that compute together compare.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/require.h"

namespace cohort::test {

inline at::Tensor drawn(std::vector<int64_t> shape, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble).to(dtype);
}

inline void require_near(const at::Tensor& ours, const at::Tensor& theirs, double tolerance = 1e-5,
                         const std::string& what = "") {
  if (ours.sizes() != theirs.sizes()) {
    throw std::runtime_error(what + ": shape " + c10::str(ours.sizes()) + ", expected " + c10::str(theirs.sizes()));
  }
  if (ours.numel() == 0) return;
  const auto a = ours.detach().to(at::kDouble), b = theirs.detach().to(at::kDouble);
  if (at::allclose(a, b, tolerance, tolerance, /*equal_nan=*/true)) return;
  throw std::runtime_error(what + " differs by " + std::to_string((a - b).abs().max().item<double>()));
}

/// The gradients of `inputs` when `output` has the gradient `cotangent`.
inline std::vector<at::Tensor> gradients_of(const at::Tensor& output, const at::Tensor& cotangent,
                                            const std::vector<at::Tensor>& inputs) {
  return torch::autograd::grad({output}, inputs, {cotangent});
}

}  // namespace cohort::test
