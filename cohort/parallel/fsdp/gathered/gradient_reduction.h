/// GradientReduction: reduces the gradients of one group's parameters to the ranks that own the shards: a reduce-scatter over the
/// ranks that share the parameters, then an all-reduce over the ranks that have the same shard (HSDP). As foreach_reduce of
/// torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py.
///
/// Each rank's row also has, for each parameter, a flag whether this rank has a gradient. So ranks may use different parameters
/// of a group, and only a rank that lacks a gradient has to look at the flags.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/fsdp/gathered/flat_lane.h"
#include "cohort/parallel/fsdp/settings/comm_plugins.h"
#include "cohort/parallel/fsdp/settings/side_stream.h"
#include "cohort/parallel/fsdp/tensors/divide_factors.h"

namespace cohort::fsdp {

/// Settings of the reduction of a group's gradients.
struct ReduceSettings {
  Group shard_group;
  Group replica_group;  ///< null if there is only one copy of the shards
  std::optional<double> divide_factor;
  bool only_sums = false;
  bool all_reduces = true;    ///< false: keeps the sum of the shard group, and adds it to a later one
  bool gives_unused = false;  ///< zeros for a parameter that no rank has used
  std::shared_ptr<ReduceScatter> reduce_scatter;
  std::function<void(const at::Tensor&)> all_reduce_hook;
  SideStream hook_stream;
};

class GradientReduction {
 public:
  /// `index`: of the parameter. `grad`: undefined if this rank has no gradient.
  struct Part {
    size_t index;
    Chunking chunking;
    at::Tensor grad;
  };
  /// Receives the parameter and the reduced chunk of its gradient, one-dimensional and in the reduction's dtype.
  using Give = std::function<void(size_t index, const at::Tensor& chunk)>;

  /// Copies the gradients, and starts. Call it in the gradients' stream. Collective.
  GradientReduction(std::vector<Part> parts, c10::ScalarType dtype, c10::Device device, const ReduceSettings& settings,
                    const SideStream& stream);

  /// Finishes the reduction; call it once. `kept_back`: the sum that an earlier reduction has kept, or where this one keeps its
  /// own, if all-reduces are off.
  void finish(at::Tensor& kept_back, const Give& give);

 private:
  void start(const at::Tensor& rows);

  std::vector<Part> parts_;
  std::vector<bool> has_grad_;
  ReduceSettings settings_;
  SideStream stream_;
  DivideFactors factors_;
  Lane lane_;
  at::Tensor output_;
  at::Tensor input_;  ///< kept as long as it is read
  WorkPtr work_;
};

}  // namespace cohort::fsdp
