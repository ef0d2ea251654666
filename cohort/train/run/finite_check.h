/// Names the first tensor that is not finite in a step, on the way from the data to the loss.
///
/// Thread-safety: none; on accelerators the host waits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cohort::train::detail {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

struct CheckedStep {
  int64_t step = 0;  ///< the optimizer's step that this would be
  int64_t epoch = 0;
  int64_t batch = 0;
  int rank = 0;
};

/// Throws c10::Error unless the loss is finite. `tensors`: searched in this order; each with a description such as "parameter
/// \"fc.weight\"".
void check_loss(const at::Tensor& loss, const CheckedStep& step, const NamedTensors& tensors);
/// Throws c10::Error naming the first gradient that is not finite.
void check_gradients(const NamedTensors& parameters, const CheckedStep& step);

}  // namespace cohort::train::detail
