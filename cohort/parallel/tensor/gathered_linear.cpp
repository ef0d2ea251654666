#include "cohort/parallel/tensor/gathered_linear.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "cohort/mesh/gathered_product.h"
#include "cohort/parallel/tensor/purpose.h"
#include "cohort/parallel/tensor/regions.h"

namespace cohort::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct PiecewiseCall : torch::CustomClassHolder {
  PiecewiseCall(GroupPlace place, int64_t dim, int64_t num_pieces)
      : place(std::move(place)), dim(dim), num_pieces(num_pieces) {}
  const GroupPlace place;
  const int64_t dim, num_pieces;

  mesh::GatherInPieces of_positions(int64_t own_size) const {
    mesh::GatherInPieces how{.group = place.group, .shares = {}, .num_pieces = num_pieces};
    for (int64_t rank = 0; rank < place.num_ranks; ++rank) {
      how.shares.push_back({rank * own_size, (rank + 1) * own_size});
    }
    return how;
  }
};
using PiecewiseCallPtr = c10::intrusive_ptr<PiecewiseCall>;

at::Tensor rows_of(const at::Tensor& tensor) { return tensor.flatten(0, -2); }

struct GatheredLinear : torch::autograd::Function<GatheredLinear> {
  static at::Tensor forward(AutogradContext* context, const PiecewiseCallPtr& call, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias) {
    const comm::CalledFor purpose(kTensorParallel);
    const int64_t own_size = input.size(call->dim), num_features = input.size(-1);
    const auto own = input.reshape({c10::multiply_integers(input.sizes().slice(0, call->dim)), own_size, -1});
    const auto [gathered, product] =
        mesh::multiply_while_gathering(call->of_positions(own_size), own, [&](const at::Tensor& rows) {
          return at::linear(rows.unflatten(-1, {-1, num_features}), weight, bias).flatten(-2);
        });
    auto sizes = input.sizes().vec();
    sizes[call->dim] *= call->place.num_ranks;
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->saved_data["has_bias"] = bias.defined() && bias.requires_grad();
    context->save_for_backward({input, weight, gathered.view(sizes)});
    sizes.back() = weight.size(0);
    return product.view(sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "[cohort] ColumnParallelLinear: a gather in several pieces has first derivatives "
                                "only\n  hint: set ColumnParallelOptions{.gather_pieces = 1} for higher derivatives");
    const auto call = c10::static_intrusive_pointer_cast<PiecewiseCall>(context->saved_data["call"].toCapsule());
    const auto saved = context->get_saved_variables();
    const auto &input = saved[0], &weight = saved[1], &gathered = saved[2];
    at::Tensor of_input;
    if (input.requires_grad()) {
      of_input = reduce_scatter_to_region(gradients[0].matmul(weight), call->dim, call->place.group);
    }
    const auto rows = rows_of(gradients[0]);
    const bool has_bias = context->saved_data["has_bias"].toBool();
    return {at::Tensor(), of_input, weight.requires_grad() ? rows.t().mm(rows_of(gathered)) : at::Tensor(),
            has_bias ? rows.sum(0) : at::Tensor()};
  }
};

}  // namespace

at::Tensor gathered_linear(const at::Tensor& input, int64_t dim, const at::Tensor& weight, const at::Tensor& bias,
                           const GroupPlace& place, int64_t num_pieces) {
  const auto wrapped = c10::maybe_wrap_dim(dim, input.dim(), /*wrap_scalar=*/false);
  TORCH_CHECK_VALUE(wrapped < input.dim() - 1, "[cohort] ColumnParallelLinear: sequence_dim ", dim,
                    " of an input of shape ", input.sizes(), " has the features, which are the last dimension");
  // All ranks or none gather in pieces: ranks with other numbers of positions must not get pieces of the same size but different
  // number.
  if (input.size(wrapped) % num_pieces != 0) num_pieces = 1;
  return GatheredLinear::apply(c10::make_intrusive<PiecewiseCall>(place, wrapped, num_pieces), input, weight, bias);
}

}  // namespace cohort::parallel
