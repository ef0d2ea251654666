/// How users teach DTensor an operation, one of LibTorch's or one of their own.
///
///     // renorm of columns, each by itself: they may be shared out.
///     cohort::register_sharding_rule("aten::renorm", [](const cohort::ShardingQuestion& question) {
///       if (question.arguments[2].toInt() != 1) return std::vector<cohort::ShardingOption>();
///       return std::vector<cohort::ShardingOption>{{.results = {cohort::Shard(1)}, .operands = {cohort::Shard(1)}}};
///     });
///
/// As torch.distributed.tensor.experimental.register_sharding.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/mesh/placement.h"

namespace cohort {

/// One call, on one axis of the mesh: others are decided apart.
struct ShardingQuestion {
  /// Of the arguments' tensors that are defined, in their order, those of lists one by one.
  std::vector<std::vector<int64_t>> shapes;  ///< of the whole tensors
  Placements placements;                     ///< how they lie now
  /// All arguments, as the caller gave them.
  std::vector<c10::IValue> arguments;
  int64_t num_ranks = 1;
};

/// If the operands lie so, running the operation on each rank's parts gives results that lie so.
struct ShardingOption {
  Placements results;   ///< one per result
  Placements operands;  ///< one per tensor, as in the question
};

using ShardingRule = std::function<std::vector<ShardingOption>(const ShardingQuestion& question)>;

/// `name`: "namespace::operation.overload". That everything is replicated is always possible and need not be said. Of what is
/// possible the option is taken that moves the fewest bytes, the first of equals. Whole results' shapes are found by running the
/// operation on meta tensors. Once asked of one call, it is not asked of another with the same question. Replaces a rule that the
/// operation has.
/// Throws c10::ValueError for an operation that LibTorch does not know, c10::NotImplementedError where DTensors cannot be had;
/// the operation throws c10::ValueError for an option of the wrong length. Not while another thread uses DTensors.
COHORT_API void register_sharding_rule(const std::string& name, ShardingRule rule);

}  // namespace cohort
