#include "cohort/parallel/tensor/gathered_linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cohort/base/cpu.h"
#include "cohort/base/env.h"
#include "cohort/base/purpose.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/tensor/parts.h"

namespace cohort::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kPiecesToOverlap = 4;

struct PiecewiseCall : torch::CustomClassHolder {
  PiecewiseCall(GroupPlace place, int64_t dim, int64_t num_pieces)
      : place(std::move(place)), dim(dim), num_pieces(num_pieces) {}
  const GroupPlace place;
  const int64_t dim, num_pieces;

  // [.., positions, .., features] -> [pieces, ranks, positions of a piece, the rest, features]
  at::Tensor in_pieces(const at::Tensor& whole, int64_t num_ranks) const {
    const auto front = whole.movedim(dim, 0);
    const int64_t of_piece = front.size(0) / (num_ranks * num_pieces);
    return front.reshape({num_ranks, num_pieces, of_piece, -1, front.size(-1)}).transpose(0, 1).contiguous();
  }

  // The other way round; `like` has the other sizes.
  at::Tensor put_together(const at::Tensor& pieces, const at::Tensor& like) const {
    auto sizes = like.movedim(dim, 0).sizes().vec();
    sizes.front() = pieces.size(0) * pieces.size(1) * pieces.size(2);
    sizes.back() = pieces.size(-1);
    return pieces.transpose(0, 1).reshape(sizes).movedim(0, dim);
  }
};
using PiecewiseCallPtr = c10::intrusive_ptr<PiecewiseCall>;

at::Tensor rows_of(const at::Tensor& tensor) { return tensor.flatten(0, -2); }

struct GatheredLinear : torch::autograd::Function<GatheredLinear> {
  static at::Tensor forward(AutogradContext* context, const PiecewiseCallPtr& call, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias) {
    const base::CalledFor purpose(base::Purpose::kTensorParallel);
    const auto own = call->in_pieces(input, 1);
    auto sizes = own.sizes().vec();
    sizes[1] = call->place.num_ranks;
    const auto gathered = at::empty(sizes, own.options());
    std::vector<WorkPtr> works;
    for (int64_t i = 0; i < call->num_pieces; ++i) {
      works.push_back(all_gather_single(gathered[i], own[i], {.group = call->place.group, .async_op = true}));
    }
    std::vector<at::Tensor> products;
    for (int64_t i = 0; i < call->num_pieces; ++i) {
      works[i]->wait();
      products.push_back(at::linear(gathered[i], weight, bias));
    }
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->saved_data["has_bias"] = bias.defined() && bias.requires_grad();
    context->save_for_backward({input, weight, gathered});
    return call->put_together(at::stack(products), input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "[cohort] ColumnParallelLinear: a gather in pieces has first derivatives only\n  hint: "
                                "ColumnParallelOptions{.gather_pieces = 1} has all");
    const base::CalledFor purpose(base::Purpose::kTensorParallel);
    const auto call = c10::static_intrusive_pointer_cast<PiecewiseCall>(context->saved_data["call"].toCapsule());
    const auto saved = context->get_saved_variables();
    const auto &input = saved[0], &weight = saved[1], &gathered = saved[2];
    const auto gradient = call->in_pieces(gradients[0], call->place.num_ranks);
    at::Tensor of_input;
    if (input.requires_grad()) {
      const auto summands = gradient.matmul(weight).transpose(0, 1).contiguous();  // [ranks, pieces, ..]
      const auto sum = at::empty(summands.sizes().slice(1), summands.options());
      reduce_scatter_single(sum, summands, {.group = call->place.group});
      of_input = call->put_together(sum.unsqueeze(1), input);
    }
    const auto rows = rows_of(gradient);
    const bool has_bias = context->saved_data["has_bias"].toBool();
    return {at::Tensor(), of_input, weight.requires_grad() ? rows.t().mm(rows_of(gathered)) : at::Tensor(),
            has_bias ? rows.sum(0) : at::Tensor()};
  }
};

int64_t ranks_on_host(const GroupPlace& place) {
  const auto local_world_size = base::env_int("LOCAL_WORLD_SIZE");
  return local_world_size.ok() ? local_world_size->value_or(place.num_ranks) : place.num_ranks;
}

}  // namespace

at::Tensor gathered_linear(const at::Tensor& input, int64_t dim, const at::Tensor& weight, const at::Tensor& bias,
                           const GroupPlace& place, int64_t num_pieces) {
  const auto wrapped = c10::maybe_wrap_dim(dim, input.dim(), /*wrap_scalar=*/false);
  TORCH_CHECK_VALUE(wrapped < input.dim() - 1, "[cohort] ColumnParallelLinear: sequence_dim ", dim,
                    " of an input of shape ", input.sizes(), " has the features, which are the last dimension");
  // All or none: ranks with other numbers of positions must not find pieces of one size, of which one has more.
  if (input.size(wrapped) % num_pieces != 0) num_pieces = 1;
  return GatheredLinear::apply(c10::make_intrusive<PiecewiseCall>(place, wrapped, num_pieces), input, weight, bias);
}

int64_t pieces_for_cores(const GroupPlace& place) {
  const bool are_spare = base::available_cores() >= ranks_on_host(place) * (at::get_num_threads() + 1);
  const auto decision = at::full({1}, are_spare ? kPiecesToOverlap : 1, at::kLong);
  agree_on(decision, place);
  return decision.item<int64_t>();
}

}  // namespace cohort::parallel
