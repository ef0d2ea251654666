#include "cohort/parallel/tensor/vocab_parallel_cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>
#include <utility>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/mesh/shard.h"
#include "cohort/parallel/tensor/group_place.h"
#include "cohort/parallel/tensor/purpose.h"

namespace cohort::parallel {
namespace {

using parallel::GroupPlace;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LossCall : torch::CustomClassHolder {
  GroupPlace place;
  ParallelCrossEntropyOptions options;
  int64_t num_classes = 0;
  base::IndexRange own;  // classes
  int64_t class_dim = 0;
  at::ScalarType dtype = at::kFloat;  // of the logits
  at::Tensor weight;                  // of all classes, in the dtype of the computation; undefined if all count equally

  // Returns the weights of this rank's classes, for logits of `dim` dimensions.
  at::Tensor own_weight(int64_t dim) const {
    std::vector<int64_t> sizes(dim, 1);
    sizes[class_dim] = own.size();
    return weight.narrow(0, own.begin, own.size()).view(sizes);
  }
};
using LossCallPtr = c10::intrusive_ptr<LossCall>;

// Returns the maximum of this rank's logits, with the class dimension kept, of size 1.
at::Tensor greatest(const LossCall& call, const at::Tensor& logits) {
  auto shape = logits.sizes().vec();
  shape[call.class_dim] = 1;
  const auto own = call.own.size() > 0 ? logits.amax(call.class_dim, /*keepdim=*/true).contiguous()
                                       : at::full(shape, -std::numeric_limits<double>::infinity(), logits.options());
  if (call.place.group && own.numel() > 0) all_reduce(own, {.op = ReduceOp::MAX, .group = call.place.group});
  return own;
}

// Returns for each target that is one of this rank's classes its index among them, and true; for others 0 and false.
std::pair<at::Tensor, at::Tensor> own_places(const LossCall& call, const at::Tensor& targets,
                                             const at::Tensor& is_ignored) {
  const auto place = targets - call.own.begin;
  const auto is_own = place.ge(0).logical_and_(place.lt(call.own.size())).logical_and_(is_ignored.logical_not());
  return {place.masked_fill(is_own.logical_not(), 0), is_own};
}

// Returns the weights in the shape of the targets.
at::Tensor weights_of(const LossCall& call, const at::Tensor& targets, const at::Tensor& is_ignored,
                      at::ScalarType dtype) {
  if (!call.weight.defined()) return is_ignored.logical_not().to(dtype);
  const auto classes = targets.masked_fill(is_ignored, 0);
  return call.weight.index_select(0, classes.flatten()).view(targets.sizes()).masked_fill_(is_ignored, 0);
}

struct Losses {
  at::Tensor of_each;        // with the class dimension, of size 1; 0 for ignored targets
  at::Tensor weights;        // of the targets; 0 for ignored ones
  at::Tensor probabilities;  // of this rank's classes
  at::Tensor places, is_own;
};

Losses losses_of(const LossCall& call, const at::Tensor& logits, const at::Tensor& targets,
                 const at::Tensor& is_ignored) {
  const comm::CalledFor purpose(parallel::kTensorParallel);
  const auto dim = call.class_dim;
  const auto shifted = logits - greatest(call, logits);
  auto [places, is_own] = own_places(call, targets, is_ignored);
  auto exponentials = shifted.exp();
  const auto own_target = call.own.size() > 0 ? shifted.gather(dim, places).masked_fill(is_own.logical_not(), 0)
                                              : at::zeros(targets.sizes(), logits.options());
  const double smoothing = call.options.label_smoothing;
  std::vector<at::Tensor> sums{exponentials.sum(dim, /*keepdim=*/true), own_target};
  const bool has_weights = call.weight.defined();
  if (smoothing > 0) {
    sums.push_back((has_weights ? shifted * call.own_weight(shifted.dim()) : shifted).sum(dim, /*keepdim=*/true));
  }
  const auto total = at::stack(sums);
  if (call.place.group && total.numel() > 0) all_reduce(total, {.group = call.place.group});
  const auto log_of_sum = total[0].log();
  const auto weights = weights_of(call, targets, is_ignored, logits.scalar_type());
  auto losses = log_of_sum - total[1];
  if (has_weights) losses = losses * weights;
  if (smoothing > 0) {
    const auto num_classes = static_cast<double>(call.num_classes);
    const auto of_all = has_weights ? log_of_sum * (call.weight.sum() / num_classes) : log_of_sum;
    losses = losses * (1 - smoothing) + (of_all - total[2] / num_classes) * smoothing;
  }
  return {losses.masked_fill(is_ignored, 0), weights, exponentials.div_(total[0]), places, is_own};
}

struct VocabParallelCrossEntropy : torch::autograd::Function<VocabParallelCrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const LossCallPtr& call, const at::Tensor& logits,
                            const at::Tensor& targets) {
    const auto dim = call->class_dim;
    const auto full_targets = targets.unsqueeze(dim);
    const auto is_ignored = full_targets.eq(call->options.ignore_index);
    const auto losses = losses_of(*call, logits.to(at::toOpMathType(logits.scalar_type())), full_targets, is_ignored);
    const auto count = losses.weights.sum();
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->save_for_backward({losses.probabilities, losses.places, losses.is_own, is_ignored, count, losses.weights});
    const auto reduction = call->options.reduction;
    if (reduction == at::Reduction::None) return losses.of_each.squeeze(dim).to(call->dtype);
    const auto sum = losses.of_each.sum();
    return (reduction == at::Reduction::Mean ? sum / count : sum).to(call->dtype);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients);
};

// Returns for each position: probability - (1 - smoothing) at the target - smoothing / classes. With weights, each class has its
// share of the smoothing, and the rest is multiplied by the target's weight.
at::Tensor before_scaling(const LossCall& call, const variable_list& saved) {
  const auto &probabilities = saved[0], &places = saved[1], &is_own = saved[2], &weights = saved[5];
  const double smoothing = call.options.label_smoothing, share = smoothing / static_cast<double>(call.num_classes);
  const bool has_weights = call.weight.defined();
  auto result = has_weights ? probabilities * (weights * (1 - smoothing) + call.weight.sum() * share) -
                                  call.own_weight(probabilities.dim()) * share
                            : probabilities - share;
  if (call.own.size() == 0) return result;
  auto at_target = is_own.to(result.scalar_type()).mul_(smoothing - 1);
  if (has_weights) at_target.mul_(weights);
  return result.scatter_add_(call.class_dim, places, at_target);
}

// Multiplies by the gradient of each position's loss.
variable_list VocabParallelCrossEntropy::backward(AutogradContext* context, const variable_list& gradients) {
  TORCH_CHECK(
      !at::GradMode::is_enabled(),
      "[cohort] vocab_parallel_cross_entropy has no second derivatives\n  hint: call backward() without create_graph");
  const auto call = c10::static_intrusive_pointer_cast<LossCall>(context->saved_data["call"].toCapsule());
  const auto saved = context->get_saved_variables();
  const auto& is_ignored = saved[3];
  auto of_each = gradients[0].to(saved[0].scalar_type());
  if (call->options.reduction == at::Reduction::None) of_each = of_each.unsqueeze(call->class_dim);
  if (call->options.reduction == at::Reduction::Mean) of_each = of_each / saved[4];
  of_each = of_each.expand(is_ignored.sizes()).masked_fill(is_ignored, 0);
  auto result = before_scaling(*call, saved);
  // An ignored position has no gradient, whatever its logits are.
  result.mul_(of_each).masked_fill_(is_ignored, 0);
  return {at::Tensor(), result.to(call->dtype), at::Tensor()};
}

void check_targets(const LossCall& call, const at::Tensor& logits, const at::Tensor& targets) {
  auto expected = logits.sizes().vec();
  expected.erase(expected.begin() + call.class_dim);
  TORCH_CHECK_VALUE(targets.scalar_type() == at::kLong && targets.sizes() == c10::IntArrayRef(expected),
                    "[cohort] vocab_parallel_cross_entropy: logits of shape ", logits.sizes(),
                    " need int64 targets of shape ", c10::IntArrayRef(expected), ", but got ", targets.scalar_type(),
                    " ", targets.sizes());
  if (!targets.is_cpu()) return;
  const auto is_wrong =
      targets.lt(0).logical_or_(targets.ge(call.num_classes)).logical_and_(targets.ne(call.options.ignore_index));
  if (!is_wrong.any().item<bool>()) return;
  TORCH_CHECK_INDEX(false, "Target ", targets.masked_select(is_wrong)[0].item<int64_t>(),
                    " is out of bounds: there are ", call.num_classes, " classes.");
}

void check_weight(const LossCall& call, const at::Tensor& weight) {
  if (!weight.defined()) return;
  TORCH_CHECK_VALUE(at::isFloatingType(weight.scalar_type()) && weight.sizes() == c10::IntArrayRef({call.num_classes}),
                    "[cohort] vocab_parallel_cross_entropy: weight must be floating-point, one number for each of the ",
                    call.num_classes, " classes of all ranks, but is ", weight.scalar_type(), " ", weight.sizes());
}

void check_classes(const LossCall& call, int64_t own) {
  TORCH_CHECK_VALUE(own == call.own.size() && call.num_classes > 0, "[cohort] vocab_parallel_cross_entropy: rank ",
                    call.place.rank, " has logits of ", own, " classes, but its share of ", call.num_classes, " is ",
                    call.own.size(), ": ", parallel::chunks_text(call.num_classes, call.place.num_ranks),
                    "\n  hint: set num_classes to the number of classes of all ranks together");
}

}  // namespace

at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                        const ParallelCrossEntropyOptions& options) {
  TORCH_CHECK_VALUE(logits.dim() > 0 && at::isFloatingType(logits.scalar_type()),
                    "[cohort] vocab_parallel_cross_entropy: logits must be floating-point, [batch, classes, ...] or "
                    "[classes], but are ",
                    logits.scalar_type(), " ", logits.sizes());
  TORCH_CHECK_VALUE(options.label_smoothing >= 0 && options.label_smoothing <= 1,
                    "label_smoothing must be between 0.0 and 1.0. Got: ", options.label_smoothing);
  auto call = c10::make_intrusive<LossCall>();
  call->place = parallel::place_in(options.group);
  call->options = options;
  call->class_dim = logits.dim() > 1 ? 1 : 0;
  const auto own = logits.size(call->class_dim);
  call->num_classes = options.num_classes.value_or(own * call->place.num_ranks);
  TORCH_CHECK_VALUE(call->num_classes >= 0, "[cohort] vocab_parallel_cross_entropy: num_classes is ",
                    call->num_classes);
  call->own = mesh::chunk_range(call->num_classes, call->place.num_ranks, call->place.rank);
  call->dtype = logits.scalar_type();
  check_classes(*call, own);
  check_targets(*call, logits, targets);
  check_weight(*call, options.weight);
  if (options.weight.defined()) call->weight = options.weight.detach().to(at::toOpMathType(logits.scalar_type()));
  return VocabParallelCrossEntropy::apply(call, logits, targets);
}

}  // namespace cohort::parallel
