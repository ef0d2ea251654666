/// The calls that a CoalescingManager keeps, and the functions by which collectives give them to it.
#pragma once

#include "cohort/comm/collectives/collectives.h"

namespace cohort::comm {

struct CoalescedCall {
  enum class Kind { kAllReduce, kAllGatherSingle, kReduceScatterSingle };
  Kind kind;
  at::Tensor output;  ///< undefined for all_reduce
  at::Tensor input;
  ReduceOp op = ReduceOp::SUM;
};

/// Whether the calling thread coalesces on any group.
bool is_coalescing();
/// Keeps the call and returns true if the calling thread coalesces on `group` (not null).
bool keep_for_coalescing(const Group& group, CoalescedCall::Kind kind, const at::Tensor& output,
                         const at::Tensor& input, const ReduceOp& op = ReduceOp::SUM);

}  // namespace cohort::comm
