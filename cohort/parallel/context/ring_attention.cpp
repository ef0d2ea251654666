#include "cohort/parallel/context/ring_attention.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <utility>

#include "cohort/comm/call/purpose.h"
#include "cohort/parallel/context/attention_block.h"
#include "cohort/parallel/context/passing_blocks.h"
#include "cohort/parallel/context/sequence_shards.h"
#include "cohort/parallel/tensor/group_place.h"

namespace cohort::parallel {
namespace {

const comm::Purpose kRingExchange(10, "ring attention's exchange of keys and values in a forward or backward pass");

using parallel::AttentionBlock;
using parallel::GroupPlace;
using parallel::PassingBlocks;
using parallel::PassingGradients;
using parallel::TensorPair;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RingCall : torch::CustomClassHolder {
  GroupPlace place;
  RingAttentionOptions options;
  double scale = 1;
};
using RingCallPtr = c10::intrusive_ptr<RingCall>;

// The work of this rank in a step: which of its queries see which of the present keys.
struct RingStep {
  bool is_skipped = false;
  bool is_causal = false;
  bool late_queries = false;  // only the second half, the tail of the sequence
  bool early_keys = false;    // only the first half, the head of the sequence

  at::Tensor of_queries(const at::Tensor& tensor) const {
    const auto half = tensor.size(2) / 2;
    return late_queries ? tensor.narrow(2, half, half) : tensor;
  }
  at::Tensor of_keys(const at::Tensor& tensor) const {
    return early_keys ? tensor.narrow(2, 0, tensor.size(2) / 2) : tensor;
  }
};

// Step i has the keys of the i-th rank before this one, cyclically. With head and tail, a rank with a lower number has an earlier
// head, which all queries see, and a later tail, which no query sees; a rank with a higher number has keys between this rank's
// head and tail.
RingStep step_of(const RingCall& call, int64_t i) {
  if (!call.options.is_causal) return {};
  if (i == 0) return {.is_causal = true};
  const bool is_before = i <= call.place.rank;
  if (call.options.layout == SequenceLayout::kContiguous) return {.is_skipped = !is_before};
  return is_before ? RingStep{.early_keys = true} : RingStep{.late_queries = true};
}

// Attention kernels require that the last dimension has no gaps.
at::Tensor without_gaps(const at::Tensor& tensor) { return tensor.stride(-1) == 1 ? tensor : tensor.contiguous(); }

AttentionBlock go_round(const RingCall& call, const at::Tensor& query, const TensorPair& own) {
  const comm::CalledFor purpose(kRingExchange);
  const auto sums = at::toOpMathType(query.scalar_type());
  PassingBlocks blocks(call.place, call.options.rotate, own);
  AttentionBlock sum;
  for (int64_t i = 0; i < call.place.num_ranks; ++i) {
    const auto [key, value] = blocks.next();
    const auto step = step_of(call, i);
    if (step.is_skipped) continue;
    const auto block = parallel::attend(step.of_queries(query), step.of_keys(key), step.of_keys(value),
                                        {.is_causal = step.is_causal, .scale = call.scale});
    if (i == 0) {
      sum = {block.out.to(sums), block.lse.to(sums)};
    } else {
      parallel::merge({step.of_queries(sum.out), step.of_queries(sum.lse)}, block);
    }
  }
  return {sum.out.to(query.scalar_type()), sum.lse};
}

struct RingAttention : torch::autograd::Function<RingAttention> {
  static at::Tensor forward(AutogradContext* context, const RingCallPtr& call, const at::Tensor& queries,
                            const at::Tensor& key, const at::Tensor& value) {
    const auto query = without_gaps(queries);
    const TensorPair own{key.contiguous(), value.contiguous()};
    const auto block = go_round(*call, query, own);
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->save_for_backward({query, own.first, own.second, block.out, block.lse});
    return block.out;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients);
};

variable_list RingAttention::backward(AutogradContext* context, const variable_list& gradients) {
  TORCH_CHECK(!at::GradMode::is_enabled(),
              "[cohort] ring_attention has no second derivatives\n  hint: call backward() without create_graph");
  const auto call = c10::static_intrusive_pointer_cast<RingCall>(context->saved_data["call"].toCapsule());
  const auto gradient = without_gaps(gradients[0]);
  const auto saved = context->get_saved_variables();
  const auto &query = saved[0], &out = saved[3], &lse = saved[4];
  const TensorPair own{saved[1], saved[2]};
  const auto sums = at::toOpMathType(query.scalar_type());
  const auto of_query = at::zeros(query.sizes(), query.options().dtype(sums));
  const comm::CalledFor purpose(kRingExchange);
  PassingBlocks blocks(call->place, call->options.rotate, own);
  PassingGradients passing(call->place, call->options.rotate, own, sums);
  for (int64_t i = 0; i < call->place.num_ranks; ++i) {
    const auto [key, value] = blocks.next();
    const auto [of_key, of_value] = passing.next();
    const auto step = step_of(*call, i);
    if (step.is_skipped) continue;
    const auto block = parallel::attend_backward(step.of_queries(gradient), step.of_queries(query), step.of_keys(key),
                                                 step.of_keys(value), {step.of_queries(out), step.of_queries(lse)},
                                                 {.is_causal = step.is_causal, .scale = call->scale});
    step.of_queries(of_query).add_(block.query);
    step.of_keys(of_key).add_(block.key);
    step.of_keys(of_value).add_(block.value);
  }
  const auto [of_key, of_value] = passing.finish();
  const auto dtype = query.scalar_type();
  return {at::Tensor(), of_query.to(dtype), of_key.to(dtype), of_value.to(dtype)};
}

void check_shapes(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const RingAttentionOptions& options, int64_t num_ranks) {
  const bool has_four = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  TORCH_CHECK_VALUE(has_four && query.size(0) == key.size(0) && query.size(3) == key.size(3) &&
                        key.sizes().slice(0, 3) == value.sizes().slice(0, 3) && query.numel() > 0 && key.numel() > 0,
                    "[cohort] ring_attention: query [batch, heads, positions, size], key and value [batch, key heads, "
                    "their positions, size] were expected, but got ",
                    query.sizes(), ", ", key.sizes(), " and ", value.sizes());
  TORCH_CHECK_VALUE(at::isFloatingType(query.scalar_type()) && query.scalar_type() == key.scalar_type() &&
                        key.scalar_type() == value.scalar_type(),
                    "[cohort] ring_attention: query, key and value must have one floating-point dtype, but have ",
                    query.scalar_type(), ", ", key.scalar_type(), " and ", value.scalar_type());
  const bool heads_fit = options.enable_gqa ? query.size(1) % key.size(1) == 0 : query.size(1) == key.size(1);
  TORCH_CHECK_VALUE(heads_fit, "[cohort] ring_attention: ", query.size(1), " heads of queries and ", key.size(1),
                    " of keys: ",
                    options.enable_gqa ? std::to_string(query.size(1)) + " mod " + std::to_string(key.size(1)) + " = " +
                                             std::to_string(query.size(1) % key.size(1))
                                       : "their numbers must be equal without enable_gqa");
  if (!options.is_causal) return;
  TORCH_CHECK_VALUE(query.size(2) == key.size(2),
                    "[cohort] ring_attention: is_causal needs as many queries as keys, but there are ", query.size(2),
                    " and ", key.size(2));
  parallel::check_length(query.size(2) * num_ranks, 2, options.layout, num_ranks);
}

}  // namespace

at::Tensor ring_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const RingAttentionOptions& options) {
  auto call = c10::make_intrusive<RingCall>();
  call->place = parallel::place_in(options.group);
  call->options = options;
  check_shapes(query, key, value, options, call->place.num_ranks);
  call->scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  return RingAttention::apply(call, query, key, value);
}

}  // namespace cohort::parallel
