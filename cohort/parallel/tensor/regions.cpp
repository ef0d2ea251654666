#include "cohort/parallel/tensor/regions.h"

#include <ATen/ATen.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <utility>

#include "cohort/mesh/axis_collectives.h"
#include "cohort/mesh/shard.h"
#include "cohort/parallel/tensor/division.h"
#include "cohort/parallel/tensor/group_place.h"
#include "cohort/parallel/tensor/purpose.h"

namespace cohort::parallel {
namespace {

using parallel::GroupPlace;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum class RegionOp : uint8_t { kNothing, kSum, kTakeShard, kGather, kReduceScatter, kAllToAll };

// An exchange and the one for its gradients, whose own gradients use the first again.
struct RegionSpec {
  GroupPlace place;
  RegionOp forward = RegionOp::kNothing;
  RegionOp backward = RegionOp::kNothing;
  int64_t dim = 0;         // the dimension of the shard, or the one that is being sharded
  int64_t gather_dim = 0;  // for kAllToAll: the dimension that is gathered
  int64_t size = 0;        // of the full tensor along `dim`
};

struct RegionCall : torch::CustomClassHolder {
  explicit RegionCall(RegionSpec spec) : spec(std::move(spec)) {}
  const RegionSpec spec;
};
using RegionCallPtr = c10::intrusive_ptr<RegionCall>;

at::Tensor communicated(const RegionSpec& spec, const at::Tensor& input) {
  const comm::CalledFor purpose(parallel::kTensorParallel);
  const mesh::AxisOf line(spec.place.group);
  switch (spec.forward) {
    case RegionOp::kNothing:
      return input.view_as(input);
    case RegionOp::kSum:
      return mesh::reduce_axis(line, "sum", input);
    case RegionOp::kTakeShard:
      return mesh::own_shard(line, Shard(spec.dim), input);
    case RegionOp::kGather:
      return mesh::gather_axis(line, Shard(spec.dim), input, spec.size);
    case RegionOp::kReduceScatter:
      return mesh::reduce_scatter_axis(line, "sum", Shard(spec.dim), input);
    case RegionOp::kAllToAll:
      return mesh::exchange_axis(line, Shard(spec.gather_dim), Shard(spec.dim), input,
                                 input.size(spec.gather_dim) * line.num_ranks());
  }
  return input;
}

RegionSpec reversed(RegionSpec spec) {
  std::swap(spec.forward, spec.backward);
  if (spec.forward == RegionOp::kAllToAll) std::swap(spec.dim, spec.gather_dim);
  return spec;
}

at::Tensor apply_region(RegionSpec spec, const at::Tensor& input);

struct Region : torch::autograd::Function<Region> {
  static at::Tensor forward(AutogradContext* context, const RegionCallPtr& call, const at::Tensor& input) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return communicated(call->spec, input);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<RegionCall>(context->saved_data["call"].toCapsule());
    return {at::Tensor(), apply_region(reversed(call->spec), gradients[0])};
  }
};

at::Tensor apply_region(RegionSpec spec, const at::Tensor& input) {
  if (!spec.place.group) return input;
  return Region::apply(c10::make_intrusive<RegionCall>(std::move(spec)), input);
}

}  // namespace

at::Tensor copy_to_region(const at::Tensor& input, const Group& group) {
  return apply_region({.place = parallel::place_in(group), .forward = RegionOp::kNothing, .backward = RegionOp::kSum},
                      input);
}

at::Tensor reduce_from_region(const at::Tensor& input, const Group& group) {
  return apply_region({.place = parallel::place_in(group), .forward = RegionOp::kSum, .backward = RegionOp::kNothing},
                      input);
}

at::Tensor scatter_to_region(const at::Tensor& input, int64_t dim, const Group& group) {
  const auto wrapped = c10::maybe_wrap_dim(dim, input.dim(), /*wrap_scalar=*/false);
  return apply_region({.place = parallel::place_in(group),
                       .forward = RegionOp::kTakeShard,
                       .backward = RegionOp::kGather,
                       .dim = wrapped,
                       .size = input.size(wrapped)},
                      input);
}

at::Tensor gather_from_region(const at::Tensor& input, int64_t dim, const GatherOptions& options) {
  const auto place = parallel::place_in(options.group);
  const auto wrapped = c10::maybe_wrap_dim(dim, input.dim(), /*wrap_scalar=*/false);
  const auto own = input.size(wrapped);
  const auto size = options.size.value_or(own * place.num_ranks);
  const auto share = mesh::chunk_range(size, place.num_ranks, place.rank).size();
  TORCH_CHECK_VALUE(
      own == share, "[cohort] gather_from_region: rank ", place.rank, " has ", own, " along dimension ", wrapped,
      ", but its share of ", size, " is ", share, ": ", parallel::chunks_text(size, place.num_ranks),
      "\n  hint: set `size` to that of the full tensor, which scatter_to_region and chunk_range() divide like this");
  const bool sums = options.gradient == RegionGradient::kSum;
  return apply_region({.place = place,
                       .forward = RegionOp::kGather,
                       .backward = sums ? RegionOp::kReduceScatter : RegionOp::kTakeShard,
                       .dim = wrapped,
                       .size = size},
                      input);
}

at::Tensor reduce_scatter_to_region(const at::Tensor& input, int64_t dim, const Group& group) {
  const auto wrapped = c10::maybe_wrap_dim(dim, input.dim(), /*wrap_scalar=*/false);
  return apply_region({.place = parallel::place_in(group),
                       .forward = RegionOp::kReduceScatter,
                       .backward = RegionOp::kGather,
                       .dim = wrapped,
                       .size = input.size(wrapped)},
                      input);
}

at::Tensor all_to_all_region(const at::Tensor& input, int64_t scatter_dim, int64_t gather_dim, const Group& group) {
  const auto from = c10::maybe_wrap_dim(scatter_dim, input.dim(), /*wrap_scalar=*/false);
  const auto to = c10::maybe_wrap_dim(gather_dim, input.dim(), /*wrap_scalar=*/false);
  TORCH_CHECK_VALUE(from != to, "[cohort] all_to_all_region: dimension ", from, " is both scattered and gathered");
  divided(input.size(from), "entries along dimension " + std::to_string(from), group);
  return apply_region({.place = parallel::place_in(group),
                       .forward = RegionOp::kAllToAll,
                       .backward = RegionOp::kAllToAll,
                       .dim = from,
                       .gather_dim = to},
                      input);
}

}  // namespace cohort::parallel
