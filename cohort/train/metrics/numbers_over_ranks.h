/// Reduces numbers in the memory of the hosts over the ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"

namespace cohort::train {

/// Collective. Returns the reduced `numbers`, of any shape, on the CPU. The exchange is on the CPU, without waiting for kernels,
/// if the group supports it, else on `device`. If `group` is null, uses the default group. May overwrite `numbers`.
at::Tensor numbers_over_ranks(const at::Tensor& numbers, const Group& group, c10::Device device,
                              ReduceOp op = ReduceOp::SUM);

}  // namespace cohort::train
