/// Numbers that ranks' hosts have, reduced over the ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"

namespace cohort::train {

/// Collective. `numbers` of any shape, reduced; on the CPU. They are exchanged there, where nobody waits for kernels, if the
/// group serves it, else on `device`. Null: the default group. `numbers` may be overwritten.
at::Tensor numbers_over_ranks(const at::Tensor& numbers, const Group& group, c10::Device device,
                              ReduceOp op = ReduceOp::SUM);

}  // namespace cohort::train
