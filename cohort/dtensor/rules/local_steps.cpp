#include "cohort/dtensor/rules/local_steps.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/NumericUtils.h>

#include <limits>

#include "cohort/dtensor/wrapper/comm_log.h"
#include "cohort/mesh/axis_collectives.h"
#include "cohort/mesh/shard.h"

namespace cohort::dtensor {
namespace {

bool shards_any_of(const Placement& placement, const std::vector<bool>& dims) {
  return placement.is_shard_like() && dims[placement.dim()];
}

}  // namespace

void run_with_local_sizes(Call& call, const Plan& plan, size_t index) {
  call.local(index) = local_sizes(call.mesh(), plan.results[0], call.argument(index).toIntVector());
  call.run();
}

bool crosses(const Plan& plan, size_t operand, const std::vector<bool>& dims) {
  for (const auto& placement : plan.operands[operand]) {
    if (shards_any_of(placement, dims)) return true;
  }
  return false;
}

at::Tensor reduced_over_shards(const Call& call, const Plan& plan, size_t operand, const std::vector<bool>& dims,
                               const std::string& reduce_op, at::Tensor tensor) {
  const auto& placements = plan.operands[operand];
  for (size_t i = 0; i < placements.size(); ++i) {
    const auto axis = static_cast<int64_t>(i);
    if (!shards_any_of(placements[i], dims) || call.mesh().size(axis) == 1 || tensor.numel() == 0) continue;
    note_collective(&CommCounts::all_reduce, call.mesh(), axis, Partial(reduce_op), Replicate(),
                    static_cast<int64_t>(tensor.nbytes()));
    tensor = mesh::reduce_axis({call.mesh(), axis}, reduce_op, tensor);
  }
  return tensor;
}

at::Tensor widened(const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

OwnIndices own_indices(const Call& call, const Plan& plan, size_t operand, int64_t dim, const at::Tensor& indices) {
  const auto held = mesh::held_ranges(call.operand(operand).sizes(), call.mesh().shape(), *call.mesh().coordinate(),
                                      plan.operands[operand]);
  OwnIndices own{at::zeros_like(indices), at::zeros_like(indices, indices.options().dtype(at::kBool))};
  int64_t passed = 0;
  for (const auto& range : held[dim]) {
    const auto inside = indices.ge(range.begin).logical_and_(indices.lt(range.end));
    own.indices = at::where(inside, indices - (range.begin - passed), own.indices);
    own.is_here.logical_or_(inside);
    passed += range.size();
  }
  return own;
}

std::vector<bool> only_dim(int64_t dim, int64_t ndim) {
  std::vector<bool> flags(ndim);
  if (ndim > 0) flags[dim] = true;
  return flags;
}

std::vector<int64_t> dims_of(const std::vector<bool>& flags) {
  std::vector<int64_t> dims;
  for (size_t dim = 0; dim < flags.size(); ++dim) {
    if (flags[dim]) dims.push_back(static_cast<int64_t>(dim));
  }
  return dims;
}

at::Scalar extreme_of(at::ScalarType dtype, bool is_max) {
  if (at::isFloatingType(dtype)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return is_max ? infinity : -infinity;
  }
  if (dtype == at::kBool) return is_max;
  return AT_DISPATCH_INTEGRAL_TYPES(dtype, "extreme_of", [&] {
    return at::Scalar(is_max ? std::numeric_limits<scalar_t>::max() : std::numeric_limits<scalar_t>::lowest());
  });
}

}  // namespace cohort::dtensor
