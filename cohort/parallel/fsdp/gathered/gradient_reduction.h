/// GradientReduction: the gradients of one group's parameters on their way from all ranks to those that own the shards: a
/// reduce-scatter over the ranks that share the parameters, then an all-reduce over those that have the same shard (HSDP).
/// As foreach_reduce of torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py.
///
/// With the gradients goes, for each parameter, whether this rank has one: it is in every rank's row. So ranks may use different
/// parameters of a group, and only a rank that lacks a gradient has to look.
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

/// How a group's gradients are reduced.
struct ReduceSettings {
  Group shard_group;
  Group replica_group;  ///< null: there is one copy of the shards
  std::optional<double> divide_factor;
  bool only_sums = false;
  bool all_reduces = true;    ///< false: the sum of the shard group is kept back, and added to a later one
  bool gives_unused = false;  ///< zeros for a parameter that nobody has used
  std::shared_ptr<ReduceScatter> reduce_scatter;
  std::function<void(const at::Tensor&)> all_reduce_hook;
  SideStream hook_stream;
};

class GradientReduction {
 public:
  /// `index`: of the parameter. `grad`: undefined where this rank has none.
  struct Part {
    size_t index;
    Cut cut;
    at::Tensor grad;
  };
  /// Told the parameter and the reduced chunk of its gradient, of one dimension and of the reduction's dtype.
  using Give = std::function<void(size_t index, const at::Tensor& chunk)>;

  /// Copies the gradients, and starts. Call it in the stream that they are of. Collective.
  GradientReduction(std::vector<Part> parts, c10::ScalarType dtype, c10::Device device, const ReduceSettings& settings,
                    const SideStream& stream);

  /// The rest, once. `kept_back`: the sum that an earlier reduction has left, or is to leave, for lack of all-reduces.
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
  at::Tensor input_;  ///< as long as it is read
  WorkPtr work_;
};

}  // namespace cohort::fsdp
