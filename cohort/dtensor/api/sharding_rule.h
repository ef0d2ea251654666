/// register_sharding_rule: teaches DTensor an operation of LibTorch, or one of your own.
///
///     // renorm treats each column by itself, so columns may be sharded.
///     cohort::register_sharding_rule("aten::renorm", [](const cohort::ShardingQuestion& question) {
///       if (question.arguments[2].toInt() != 1) return std::vector<cohort::ShardingOption>();
///       return std::vector<cohort::ShardingOption>{{.results = {cohort::Shard(1)}, .operands = {cohort::Shard(1)}}};
///     });
///
/// Follows torch.distributed.tensor.experimental.register_sharding.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/mesh/placement.h"

namespace cohort {

/// One call, on one axis of the mesh; each axis is decided by itself.
struct ShardingQuestion {
  /// The defined tensors among the arguments, in their order; the tensors of a list count one by one.
  std::vector<std::vector<int64_t>> shapes;  ///< global shapes
  Placements placements;                     ///< current placements
  /// All arguments, as the caller passed them.
  std::vector<c10::IValue> arguments;
  int64_t num_ranks = 1;
};

/// Placements of operands with which each rank can run the operation on its local tensors, and the results' placements then.
struct ShardingOption {
  Placements results;   ///< one per result
  Placements operands;  ///< one per tensor, as in the question
};

using ShardingRule = std::function<std::vector<ShardingOption>(const ShardingQuestion& question)>;

/// Registers a rule for `name`, "namespace::operation.overload". It replaces the operation's rule, if there is one. A rule need
/// not list the option with everything replicated, which is always possible. DTensor takes the option that sends the fewest
/// bytes, and the first one of equals. It finds the results' global shapes by running the operation on meta tensors. A rule is
/// called once for calls with the same question.
/// Throws c10::ValueError for an operation that LibTorch does not know, c10::NotImplementedError if this process cannot have
/// DTensors; the operation throws c10::ValueError for an option of the wrong length. Not while another thread uses DTensors.
COHORT_API void register_sharding_rule(const std::string& name, ShardingRule rule);

}  // namespace cohort
