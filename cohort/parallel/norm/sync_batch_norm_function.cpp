#include "cohort/parallel/norm/sync_batch_norm_function.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "cohort/comm/call/purpose.h"
#include "cohort/comm/collectives/collectives.h"

namespace cohort::norm {
namespace {

const comm::Purpose kSumExchange(8, "SyncBatchNorm's exchange of sums in a forward or backward pass");

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SyncBatchNormCall : torch::CustomClassHolder {
  Group group;
  double momentum = 0;
  double eps = 0;
};

// Statistics of the ranks' common batch.
struct Statistics {
  at::Tensor mean, var, count;  // [channels] twice, [1]
};

at::TensorOptions options_of_statistics(const at::Tensor& input) {
  return input.options().dtype(at::toOpMathType(input.scalar_type())).memory_format(std::nullopt);
}

// Converts a parameter, which may be undefined.
at::Tensor in_dtype(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() ? tensor.to(dtype) : tensor;
}

at::Tensor dense(const at::Tensor& tensor, at::MemoryFormat format) { return tensor.contiguous(format); }

// Returns mean, variance and count of this rank's batch, one after the other; zeros for an empty batch.
at::Tensor statistics_of(const at::Tensor& input) {
  const auto options = options_of_statistics(input);
  const int64_t num_channels = input.size(1);
  if (input.numel() == 0) return at::zeros({2 * num_channels + 1}, options);
  // Without running statistics the CPU's kernel would return statistics of bfloat16 in bfloat16.
  const auto ignored_mean = at::zeros({num_channels}, options), ignored_var = at::zeros({num_channels}, options);
  const auto [mean, var] = at::batch_norm_update_stats(input, ignored_mean, ignored_var, /*momentum=*/0.0);
  return at::cat({mean, var, at::full({1}, input.numel() / num_channels, options)});
}

Statistics exchange(const at::Tensor& own, const Group& group, int64_t num_channels) {
  const comm::CalledFor purpose(kSumExchange);
  const int64_t num_ranks = group->getSize();
  const auto all = at::empty({num_ranks, own.numel()}, own.options());
  all_gather_single(all, own, {.group = group});
  const auto means = all.narrow(1, 0, num_channels), vars = all.narrow(1, num_channels, num_channels);
  const auto counts = all.narrow(1, 2 * num_channels, 1);
  const auto count = counts.sum(0);
  const auto shares = counts / count.clamp_min(1);
  const auto mean = (means * shares).sum(0);
  const auto var = ((vars + (means - mean).square_()) * shares).sum(0);
  return {mean, var, count};
}

void move_towards(const at::Tensor& running, const at::Tensor& now, const at::Tensor& share) {
  const auto dtype = running.scalar_type();
  running.lerp_(now.to(dtype), share.to(dtype));
}

// A batch that is empty on all ranks changes nothing, and a single value has no variance.
void update_running(const BatchNormTensors& tensors, const Statistics& now, double momentum) {
  if (!tensors.running_mean.defined()) return;
  const auto share = now.count.clamp_max(1) * momentum;
  move_towards(tensors.running_mean, now.mean, share);
  const auto others = now.count - 1;
  move_towards(tensors.running_var, now.var * (now.count / others.clamp_min(1)), others.clamp(0, 1) * momentum);
}

// Computes (input - mean) / sqrt(var + eps) * weight + bias, in one pass and in the input's dtype.
at::Tensor normalized(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& mean,
                      const at::Tensor& var, double eps) {
  if (input.numel() == 0) return at::empty_like(input);
  return std::get<0>(at::native_batch_norm(input, weight, bias, mean, var, /*training=*/false, /*momentum=*/0.0, eps));
}

// Returns this rank's sums over its batch: of the gradients, and of gradient times normalized input. They are its gradients of
// bias and weight.
std::pair<at::Tensor, at::Tensor> sums_of(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                                          const at::Tensor& var, double eps) {
  if (input.numel() == 0) return {at::zeros_like(mean), at::zeros_like(mean)};
  // On CUDA tensors that this direction does not use must be defined: weights, and the tensors that forward would have saved,
  // which may be empty.
  const auto weight = at::ones_like(mean), saved = at::empty({0}, mean.options());
  const auto [unused, of_weight, of_bias] = at::native_batch_norm_backward(
      gradient, input, weight, mean, var, saved, saved, /*train=*/false, eps, {false, true, true});
  return {of_bias.to(mean.scalar_type()), of_weight.to(mean.scalar_type())};
}

using MaybeTensor = std::optional<at::Tensor>;

MaybeTensor if_defined(const at::Tensor& tensor) { return tensor.defined() ? MaybeTensor(tensor) : std::nullopt; }

struct SyncBatchNormFunction : torch::autograd::Function<SyncBatchNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const MaybeTensor& weight,
                            const MaybeTensor& bias, const BatchNormTensors& tensors,
                            const c10::intrusive_ptr<SyncBatchNormCall>& call);
  static variable_list backward(AutogradContext* context, variable_list gradients);
};

// Weight and bias are separate arguments for autograd, which takes no undefined tensors.
at::Tensor SyncBatchNormFunction::forward(AutogradContext* context, const at::Tensor& input,
                                          const MaybeTensor& /*weight*/, const MaybeTensor& /*bias*/,
                                          const BatchNormTensors& tensors,
                                          const c10::intrusive_ptr<SyncBatchNormCall>& call) {
  const auto x = dense(input, input.suggest_memory_format());
  const auto now = exchange(statistics_of(x), call->group, x.size(1));
  update_running(tensors, now, call->momentum);
  context->save_for_backward({x, tensors.weight, now.mean, now.var, now.count});
  context->saved_data["call"] = c10::IValue::make_capsule(call);
  context->saved_data["has_bias"] = tensors.bias.defined();
  const auto dtype = now.mean.scalar_type();
  return normalized(x, in_dtype(tensors.weight, dtype), in_dtype(tensors.bias, dtype), now.mean, now.var, call->eps);
}

// Computes weight / sqrt(var + eps) * (gradient - mean of gradients - normalized input * mean of gradient times normalized
// input).
at::Tensor gradient_of_input(const at::Tensor& gradient, const variable_list& saved, const at::Tensor& sums,
                             double eps) {
  const auto &x = saved[0], &weight = saved[1], &mean = saved[2], &var = saved[3], &count = saved[4];
  if (x.numel() == 0) return at::empty_like(x);
  const auto dtype = mean.scalar_type();
  auto scale = (var + eps).rsqrt_();
  if (weight.defined()) scale.mul_(weight.to(dtype));
  const auto means = (sums / count).view({2, -1});
  auto result = normalized(x.to(dtype), -scale * means[1], -scale * means[0], mean, var, eps);
  std::vector<int64_t> per_channel(x.dim(), 1);
  per_channel[1] = -1;
  return result.addcmul_(gradient.to(dtype), scale.view(per_channel)).to(x.scalar_type());
}

variable_list SyncBatchNormFunction::backward(AutogradContext* context, variable_list gradients) {
  TORCH_CHECK(!at::GradMode::is_enabled(),
              "[cohort] SyncBatchNorm has no second derivatives\n  hint: call backward() without create_graph");
  const auto call = c10::static_intrusive_pointer_cast<SyncBatchNormCall>(context->saved_data["call"].toCapsule());
  const auto saved = context->get_saved_variables();
  const auto gradient = dense(gradients[0], saved[0].suggest_memory_format());
  const auto [of_bias, of_weight] = sums_of(gradient, saved[0], saved[2], saved[3], call->eps);
  variable_list result(5);
  if (context->needs_input_grad(0)) {
    const comm::CalledFor purpose(kSumExchange);
    const auto sums = at::cat({of_bias, of_weight});
    all_reduce(sums, {.group = call->group});
    result[0] = gradient_of_input(gradient, saved, sums, call->eps);
  }
  size_t edge = 1;  // of the defined ones
  if (saved[1].defined() && context->needs_input_grad(edge++)) result[1] = of_weight;
  if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(edge)) result[2] = of_bias;
  return result;
}

}  // namespace

Group group_to_sync(const Group& group) {
  if (!group && !is_initialized()) return {};
  const auto found = group ? group : default_group();
  return is_member(found) && found->getSize() > 1 ? found : Group();
}

at::Tensor sync_batch_norm(const at::Tensor& input, const BatchNormTensors& tensors, const Group& group,
                           double momentum, double eps) {
  auto call = c10::make_intrusive<SyncBatchNormCall>();
  call->group = group;
  call->momentum = momentum;
  call->eps = eps;
  return SyncBatchNormFunction::apply(input, if_defined(tensors.weight), if_defined(tensors.bias), tensors, call);
}

}  // namespace cohort::norm
