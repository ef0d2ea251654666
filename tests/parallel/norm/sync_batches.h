/// Batches that ranks have a part of each, and what batch norm of the whole gives: the oracle of SyncBatchNorm's tests.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/batchnorm.h>

#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/norm/sync_batch_norm.h"
#include "tests/support/require.h"

namespace cohort::test {

struct SyncCase {
  std::vector<int64_t> rows = {2, 3};   // of each rank
  std::vector<int64_t> shape = {4, 3};  // of a row
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  at::ScalarType dtype = at::kFloat;
  SyncBatchNormOptions options = {};
  double offset = 0.5;  // of the inputs from 0, in standard deviations
  double tolerance = 2e-6;
  int num_steps = 2;
  c10::Device device = at::kCPU;
};

inline std::vector<int64_t> with_rows(int64_t rows, std::vector<int64_t> shape) {
  shape.insert(shape.begin(), rows);
  return shape;
}

inline at::Tensor drawn(const SyncCase& c, int rank, int seed, double offset) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(1000 * seed + rank);
  return (at::randn(with_rows(c.rows[rank], c.shape), generator, at::kFloat) + offset)
      .to(c.dtype)
      .contiguous(c.format)
      .to(c.device);
}

/// A layer whose weight and bias are not those that it began with.
template <class Norm>
void set_values(Norm& norm) {
  const at::NoGradGuard no_grad;
  if (!norm.weight.defined() || !norm.weight.requires_grad()) return;
  norm.weight.copy_(at::linspace(0.5, 2, norm.weight.numel()));
  if (norm.bias.defined()) norm.bias.copy_(at::linspace(-1, 1, norm.bias.numel()));
}

struct JointResult {
  std::vector<at::Tensor> outputs, input_gradients;  // of each step
  std::vector<at::Tensor> parameter_gradients, buffers;
};

/// `x` and `cotangent` of a step.
using StepTensors = std::function<at::Tensor(int step)>;

template <class Norm>
JointResult run_steps(Norm& norm, int num_steps, const StepTensors& x, const StepTensors& cotangent) {
  JointResult result;
  for (int step = 0; step < num_steps; ++step) {
    const auto input = x(step).requires_grad_();
    const auto y = norm.forward(input);
    result.outputs.push_back(y.detach().cpu());
    y.backward(cotangent(step));
    result.input_gradients.push_back(input.grad().cpu());
  }
  for (const auto& parameter : norm.parameters()) result.parameter_gradients.push_back(parameter.grad().cpu());
  for (const auto& buffer : norm.buffers()) {
    if (buffer.defined()) result.buffers.push_back(buffer.cpu());
  }
  return result;
}

/// torch::batch_norm of all ranks' rows, in float64.
inline JointResult of_the_joined_batch(const SyncCase& c) {
  torch::nn::BatchNorm2d norm(torch::nn::BatchNorm2dOptions(c.shape[0])
                                  .eps(c.options.eps)
                                  .momentum(c.options.momentum)
                                  .affine(c.options.affine)
                                  .track_running_stats(c.options.track_running_stats));
  norm->to(at::kDouble);
  set_values(*norm);
  if (c.options.affine && !c.options.bias) norm->bias.set_data(at::zeros_like(norm->bias));
  const int64_t num_rows = std::accumulate(c.rows.begin(), c.rows.end(), int64_t{0});
  const int64_t size = std::accumulate(c.shape.begin() + 1, c.shape.end(), int64_t{1}, std::multiplies<>());
  const auto joined = [&](int seed, double offset) {
    std::vector<at::Tensor> parts;
    for (size_t rank = 0; rank < c.rows.size(); ++rank) {
      parts.push_back(drawn(c, static_cast<int>(rank), seed, offset).cpu().to(at::kDouble).contiguous());
    }
    return at::cat(parts).reshape({num_rows, c.shape[0], size, 1});
  };
  auto result = run_steps(
      *norm, c.num_steps, [&](int step) { return joined(step, c.offset); },
      [&](int step) { return joined(100 + step, 0); });
  for (auto* tensors : {&result.outputs, &result.input_gradients}) {
    for (auto& tensor : *tensors) tensor = tensor.reshape(with_rows(num_rows, c.shape));
  }
  return result;
}

inline void require_close(const at::Tensor& ours, const at::Tensor& theirs, double tolerance) {
  REQUIRE(ours.sizes() == theirs.sizes());
  const auto difference = (ours.to(at::kDouble) - theirs.to(at::kDouble)).abs();
  const bool is_close = (difference <= tolerance * (1 + theirs.abs().to(at::kDouble))).all().item<bool>();
  if (!is_close) throw std::runtime_error("differs by " + std::to_string(difference.max().item<double>()));
}

/// A layer that gives `result` on rank `rank` of `group`, whose ranks have the case's rows, does what batch norm of all does.
inline void require_joint(const SyncCase& c, const JointResult& result, int rank, const Group& group) {
  const auto expected = of_the_joined_batch(c);
  const auto begin = std::accumulate(c.rows.begin(), c.rows.begin() + rank, int64_t{0});
  for (int step = 0; step < c.num_steps; ++step) {
    const auto rows = [&](const at::Tensor& joined) { return joined.narrow(0, begin, c.rows[rank]); };
    REQUIRE(result.outputs[step].scalar_type() == c.dtype);
    REQUIRE(result.outputs[step].is_contiguous(c.format));
    REQUIRE(result.input_gradients[step].is_contiguous(c.format));
    require_close(result.outputs[step], rows(expected.outputs[step]), c.tolerance);
    require_close(result.input_gradients[step], rows(expected.input_gradients[step]), c.tolerance);
  }
  for (size_t i = 0; i < result.parameter_gradients.size(); ++i) {  // each rank has its share of the sum
    auto sum = result.parameter_gradients[i].clone();
    all_reduce(sum, {.group = group});
    require_close(sum, expected.parameter_gradients[i], 10 * c.tolerance);
  }
  REQUIRE(result.buffers.size() == expected.buffers.size());
  for (size_t i = 0; i < result.buffers.size(); ++i) require_close(result.buffers[i], expected.buffers[i], c.tolerance);
}

/// run_steps with this rank's rows.
template <class Norm>
JointResult run_share(const SyncCase& c, Norm& norm, int rank) {
  set_values(norm);
  return run_steps(
      norm, c.num_steps, [&](int step) { return drawn(c, rank, step, c.offset); },
      [&](int step) { return drawn(c, rank, 100 + step, 0); });
}

}  // namespace cohort::test
