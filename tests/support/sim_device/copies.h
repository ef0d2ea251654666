/// Copies as CUDA makes them.
#pragma once

#include <ATen/core/Tensor.h>

namespace cohort::sim {

/// Runs in the source's current stream (an upload in the destination's). Between devices it is fenced by both sides' current
/// streams. Host memory that is not pinned is staged on its way in when `non_blocking`, and waited for in all other cases;
/// pinned memory is used when the copy runs.
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& destination, bool non_blocking);
at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& destination);

}  // namespace cohort::sim
