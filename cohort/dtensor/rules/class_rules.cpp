// Class scores: softmax and the likelihood of targets. If ranks shard the classes, such as a vocabulary, they exchange a few
// numbers for each target, and no scores.
#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>

#include <limits>
#include <optional>
#include <string>

#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/local_steps.h"
#include "cohort/dtensor/rules/rules.h"

namespace cohort::dtensor {
namespace {

// ---- Softmax: (scores, dim, dtype); backward: (grad, output, dim, dtype) ----

Labels softmax_labels(const Call& call) {
  Labels labels(call);
  for (auto& dims : labels.operands) dims = letters(call.operand(0).dim());
  labels.results[0].dims = letters(call.operand(0).dim());
  return labels;
}

auto run_softmax(bool is_log) {
  return [is_log](Call& call, const Plan& plan) {
    const int64_t dim = call.dim_argument(1, call.operand(0).dim());
    const auto flags = only_dim(dim, call.operand(0).dim());
    if (!crosses(plan, 0, flags)) return call.run();
    const auto& given = call.local_tensor(0);
    const auto scores = widened(given);
    const auto over_all = [&](const char* op, at::Tensor numbers) {
      return reduced_over_shards(call, plan, 0, flags, op, std::move(numbers));
    };
    auto sizes = scores.sizes().vec();
    sizes[dim] = 1;
    const bool is_empty = scores.size(dim) == 0;
    constexpr double kLeast = -std::numeric_limits<double>::infinity();
    const auto largest =
        over_all("max", is_empty ? at::full(sizes, kLeast, scores.options()) : scores.amax(dim, /*keepdim=*/true));
    const auto shifted = scores - largest;
    const auto powers = shifted.exp();
    const auto sum = over_all("sum", powers.sum(dim, /*keepdim=*/true));
    const auto result = is_log ? shifted - sum.log() : powers / sum;
    call.finish({result.to(call.argument(2).toBool() ? at::kFloat : given.scalar_type())});
  };
}

auto run_softmax_backward(bool is_log) {
  return [is_log](Call& call, const Plan& plan) {
    const int64_t dim = call.dim_argument(2, call.operand(0).dim());
    const auto flags = only_dim(dim, call.operand(0).dim());
    if (!crosses(plan, 0, flags)) return call.run();
    const auto grad = widened(call.local_tensor(0)), output = widened(call.local_tensor(1));
    const auto sum =
        reduced_over_shards(call, plan, 0, flags, "sum", (is_log ? grad : grad * output).sum(dim, /*keepdim=*/true));
    const auto result = is_log ? grad - output.exp() * sum : (grad - sum) * output;
    call.finish({result.to(call.argument(3).toScalarType())});
  };
}

// ---- Likelihood: (scores, targets, weight, reduction, ignore_index) -> loss, weight of all targets ----

constexpr char kClasses = 'y';

struct LikelihoodArguments {
  int64_t scores, targets, weight, reduction, ignore_index;
};
constexpr LikelihoodArguments kForward{0, 1, 2, 3, 4}, kBackward{1, 2, 3, 4, 5};

// The letters of the targets; scores have one more dimension.
std::string target_dims(const Call& call, const LikelihoodArguments& at) {
  return letters(call.operand(call.operand_of(at.targets)).dim());
}

std::string score_dims(std::string targets) {
  targets.insert(targets.empty() ? 0 : 1, 1, kClasses);
  return targets;
}

int64_t class_dim(const Call& call, const LikelihoodArguments& at) {
  return call.operand(call.operand_of(at.scores)).dim() == 1 ? 0 : 1;
}

Labels likelihood_operands(const Call& call, const LikelihoodArguments& at) {
  Labels labels(call);
  labels.name(call, at.scores, score_dims(target_dims(call, at)));
  labels.name(call, at.targets, target_dims(call, at));
  labels.name(call, at.weight, {kClasses});
  return labels;
}

bool has_reduction(const Call& call, const LikelihoodArguments& at, at::Reduction::Reduction kind) {
  return call.argument(at.reduction).toInt() == kind;
}

Labels likelihood_labels(const Call& call) {
  auto labels = likelihood_operands(call, kForward);
  const auto targets = target_dims(call, kForward);
  if (has_reduction(call, kForward, at::Reduction::None)) {
    labels.results[0] = {.dims = targets, .summed = {kClasses}};
  } else {
    labels.results[0] = {.dims = "", .summed = targets + kClasses};
  }
  labels.results[1] = {.dims = "", .untouched = targets + kClasses};  // run_likelihood sums it
  return labels;
}

// Arguments: (grad, scores, targets, weight, reduction, ignore_index, total weight).
Labels likelihood_backward_labels(const Call& call) {
  auto labels = likelihood_operands(call, kBackward);
  if (has_reduction(call, kBackward, at::Reduction::None)) labels.name(call, 0, target_dims(call, kBackward));
  labels.results[0].dims = score_dims(target_dims(call, kBackward));
  return labels;
}

bool shards_classes(const Call& call, const Plan& plan, const LikelihoodArguments& at) {
  const auto scores = static_cast<size_t>(call.operand_of(at.scores));
  return crosses(plan, scores, only_dim(class_dim(call, at), call.operand(scores).dim()));
}

// The targets whose classes this rank has; shaped like the scores, with one element in the classes' dimension.
struct OwnTargets {
  at::Tensor indices;  ///< indices in this rank's shard
  at::Tensor is_own;   ///< false for targets that other ranks have or that are ignored
  at::Tensor weights;  ///< 0 if is_own is false
};

// Returns the first target of this rank that is not a class.
std::optional<int64_t> wrong_target(Call& call, const LikelihoodArguments& at) {
  const auto& targets = call.local_tensor(at.targets);
  if (!targets.is_cpu()) return std::nullopt;  // would have to wait for the device
  const auto num_classes = call.operand(call.operand_of(at.scores)).sizes()[class_dim(call, at)];
  const auto ignored = call.argument(at.ignore_index).toInt();
  const auto is_wrong = targets.lt(0).logical_or_(targets.ge(num_classes)).logical_and_(targets.ne(ignored));
  if (!is_wrong.any().item<bool>()) return std::nullopt;
  return targets.masked_select(is_wrong)[0].item<int64_t>();
}

void check_targets(const std::optional<int64_t>& wrong) {
  TORCH_CHECK_INDEX(!wrong, "Target ", *wrong, " is out of bounds.");
}

// Returns the weight of all targets. Collective over the axes that shard `operand`. Fails on all ranks, so that none waits for
// one that has failed.
at::Tensor weight_of_all(const Call& call, const Plan& plan, size_t operand, const at::Tensor& weight,
                         const std::optional<int64_t>& wrong) {
  const std::vector<bool> all_dims(call.operand(operand).dim(), true);
  const auto flag = at::full({}, wrong ? 1 : 0, weight.options());
  const auto sums = reduced_over_shards(call, plan, operand, all_dims, "sum", at::stack({weight, flag}));
  check_targets(wrong);
  TORCH_CHECK_INDEX(!weight.is_cpu() || sums[1].item<double>() == 0, "[cohort] DTensor: ", call.name(),
                    ": another rank has a target that is not a class");
  return sums[0];
}

OwnTargets own_targets(Call& call, const Plan& plan, const LikelihoodArguments& at) {
  const auto& scores = call.local_tensor(at.scores);
  const auto& targets = call.local_tensor(at.targets);
  const auto operand = static_cast<size_t>(call.operand_of(at.scores));
  const int64_t dim = class_dim(call, at), ignored = call.argument(at.ignore_index).toInt();
  const auto own = own_indices(call, plan, operand, dim, targets);
  const auto is_own = own.is_here.logical_and(targets.ne(ignored));
  auto weights = is_own.to(scores.scalar_type());
  if (call.operand_of(at.weight) >= 0 && scores.size(dim) > 0) {
    weights.mul_(call.local_tensor(at.weight).index_select(0, own.indices.flatten()).view_as(targets));
  }
  return {own.indices.unsqueeze(dim), is_own.unsqueeze(dim), weights.unsqueeze(dim)};
}

at::Tensor own_losses(Call& call, const OwnTargets& own) {
  const auto& scores = call.local_tensor(0);
  const int64_t dim = class_dim(call, kForward);
  if (scores.size(dim) == 0) return at::zeros_like(own.weights).squeeze(dim);
  // Gathered values of classes that other ranks have may be infinite, so they are set to 0.
  const auto found = scores.gather(dim, own.indices).neg();
  return found.mul(own.weights).masked_fill_(own.weights.eq(0), 0).squeeze(dim);
}

void run_likelihood_of_sharded_classes(Call& call, const Plan& plan) {
  const auto wrong = wrong_target(call, kForward);
  const auto own = own_targets(call, plan, kForward);
  const auto losses = own_losses(call, own);
  if (has_reduction(call, kForward, at::Reduction::None)) {
    check_targets(wrong);
    return call.finish({losses, at::zeros({}, losses.options())});
  }
  const auto weight = weight_of_all(call, plan, 0, own.weights.sum(), wrong);
  const auto sum = losses.sum();
  call.finish({has_reduction(call, kForward, at::Reduction::Mean) ? sum / weight : sum, weight});
}

// The mean is over all ranks' targets: the sum of this rank's losses, divided by the weight of all targets.
void run_likelihood(Call& call, const Plan& plan) {
  if (shards_classes(call, plan, kForward)) return run_likelihood_of_sharded_classes(call, plan);
  const std::vector<bool> all_dims(call.operand(1).dim(), true);
  if (has_reduction(call, kForward, at::Reduction::None) || !crosses(plan, 1, all_dims)) return call.run();
  const bool is_mean = has_reduction(call, kForward, at::Reduction::Mean);
  const auto wrong = wrong_target(call, kForward);
  auto weight = at::zeros({}, call.local_tensor(0).options());
  if (!wrong) {
    call.local(3) = static_cast<int64_t>(at::Reduction::Sum);
    call.run();
    weight = call.result(1).toTensor();
  }
  weight = weight_of_all(call, plan, 1, weight, wrong);
  if (is_mean) call.result(0) = call.result(0).toTensor() / weight;
  call.result(1) = weight;
}

void run_likelihood_backward(Call& call, const Plan& plan) {
  if (!shards_classes(call, plan, kBackward)) return call.run();
  const auto own = own_targets(call, plan, kBackward);
  const int64_t dim = class_dim(call, kBackward);
  auto grad = call.local_tensor(0);
  if (has_reduction(call, kBackward, at::Reduction::None)) grad = grad.unsqueeze(dim);
  if (has_reduction(call, kBackward, at::Reduction::Mean)) grad = grad / call.local_tensor(6);
  const auto result = at::zeros_like(call.local_tensor(1), at::MemoryFormat::Contiguous);
  if (result.size(dim) > 0) {
    // If no target counts, the gradient is infinite, and 0 times infinity is NaN.
    const auto of_targets = own.weights.mul(grad).neg_().masked_fill_(own.is_own.logical_not(), 0);
    result.scatter_(dim, own.indices, of_targets);
  }
  call.finish({result});
}

}  // namespace

void add_class_rules() {
  add_rule("aten::_softmax", labeled(softmax_labels, run_softmax(/*is_log=*/false)));
  add_rule("aten::_log_softmax", labeled(softmax_labels, run_softmax(/*is_log=*/true)));
  add_rule("aten::_softmax_backward_data", labeled(softmax_labels, run_softmax_backward(/*is_log=*/false)));
  add_rule("aten::_log_softmax_backward_data", labeled(softmax_labels, run_softmax_backward(/*is_log=*/true)));
  for (const char* name : {"nll_loss", "nll_loss2d"}) {
    add_rule(std::string("aten::") + name + "_forward", labeled(likelihood_labels, run_likelihood));
    add_rule(std::string("aten::") + name + "_backward", labeled(likelihood_backward_labels, run_likelihood_backward));
  }
}

}  // namespace cohort::dtensor
