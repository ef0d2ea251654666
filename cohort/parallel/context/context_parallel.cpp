#include "cohort/parallel/context/context_parallel.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <utility>

#include "cohort/comm/backend/accelerator.h"
#include "cohort/comm/overrides/override.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/mesh/shard.h"
#include "cohort/parallel/context/sequence_layout.h"
#include "cohort/parallel/context/ulysses_attention.h"

namespace cohort {
namespace parallel {

struct ContextCall {
  Group group;
  SequenceLayout layout;
  ContextAttention attention;
  RotateMethod rotate;
};

}  // namespace parallel

namespace {

using parallel::ContextCall;

// The call of the open scope. Its readers are inside that scope.
std::atomic<const ContextCall*> open_scope = nullptr;

parallel::SequenceLayout layout_of(bool load_balance) {
  return load_balance ? parallel::SequenceLayout::kHeadTail : parallel::SequenceLayout::kContiguous;
}

void check_supported(const ContextCall& call, bool has_mask, double dropout_p) {
  TORCH_CHECK_VALUE(dropout_p == 0, "[cohort] ContextParallel: attention with dropout (dropout_p is ", dropout_p,
                    ") is not supported\n  hint: set it to 0; dropout elsewhere in the model is not affected");
  TORCH_CHECK_VALUE(!has_mask || call.attention == ContextAttention::kUlysses,
                    "[cohort] ContextParallel: ring attention takes no attn_mask\n"
                    "  hint: set is_causal = true for a causal mask, or use ContextAttention::kUlysses for any mask");
}

// With tensor parallelism each rank has some heads, or sequences, and computes their attention itself; otherwise all ranks have
// all heads.
template <class Attention>
at::Tensor on_parts(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const Attention& attention) {
  const DTensor full(query);
  auto placements = full.placements();
  for (auto& placement : placements) {
    if (!placement.is_shard(0) && !placement.is_shard(1)) placement = Replicate();
  }
  const auto part_of = [&](const at::Tensor& tensor) {
    TORCH_CHECK_VALUE(is_dtensor(tensor),
                      "[cohort] ContextParallel: the query of attention is a DTensor, but key or value is not");
    return DTensor(tensor).redistribute(placements).to_local();
  };
  const auto local = attention(part_of(query), part_of(key), part_of(value));
  const std::vector<int64_t> shape{query.size(0), query.size(1), query.size(2), value.size(3)};
  return DTensor::from_local(local, full.device_mesh(), placements,
                             {.shape = shape, .stride = mesh::compute_local_stride(local.strides(), shape)});
}

at::Tensor attend_in_scope(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const std::optional<at::Tensor>& attn_mask, double dropout_p, bool is_causal,
                           std::optional<double> scale, bool enable_gqa) {
  const auto* call = open_scope.load();
  if (!call) {
    return at::native::scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale,
                                                    enable_gqa);
  }
  const bool has_mask = attn_mask && attn_mask->defined();
  check_supported(*call, has_mask, dropout_p);
  if (is_dtensor(query)) {
    return on_parts(query, key, value, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return attend_in_scope(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa);
    });
  }
  if (call->attention == ContextAttention::kUlysses) {
    return parallel::ulysses_attention(query, key, value,
                                       {.group = call->group,
                                        .attn_mask = attn_mask,
                                        .is_causal = is_causal,
                                        .scale = scale,
                                        .enable_gqa = enable_gqa,
                                        .layout = call->layout});
  }
  return parallel::ring_attention(query, key, value,
                                  {.group = call->group,
                                   .is_causal = is_causal,
                                   .scale = scale,
                                   .enable_gqa = enable_gqa,
                                   .layout = call->layout,
                                   .rotate = call->rotate});
}

// Overrides the kernel above and below autograd: tensors of inference mode are below.
void stand_before_attention(c10::DeviceType type) {
  const auto dense = c10::computeDispatchKey(std::nullopt, at::kStrided, c10::Device(type));
  const auto backend = c10::toBackendComponent(dense);
  for (const auto functionality : {c10::DispatchKey::AutogradFunctionality, c10::DispatchKey::Dense}) {
    const auto key = c10::toRuntimePerBackendFunctionalityKey(functionality, backend);
    comm::override_kernel("ContextParallel", "aten::scaled_dot_product_attention", key,
                          torch::CppFunction(TORCH_FN(attend_in_scope)));
  }
}

// Overrides the kernel for good: another thread may be calling the operator when a scope ends. LibTorch composes the operator of
// others, and has no kernel of its own there.
void stand_before_attention() {
  stand_before_attention(c10::DeviceType::CPU);
  if (const auto type = comm::accelerator_type()) stand_before_attention(*type);
}

void check_lists(size_t num_buffers, size_t num_dims) {
  TORCH_CHECK_VALUE(num_buffers == num_dims, "`seq_dims` must have the same number of elements as `buffers`.");
}

bool is_one_of(const at::Tensor& tensor, const std::vector<at::Tensor>& list) {
  for (const auto& each : list) {
    if (each.is_same(tensor)) return true;
  }
  return false;
}

void check(const ContextParallelOptions& options) {
  check_lists(options.buffers.size(), options.buffer_seq_dims.size());
  for (const auto& buffer : options.no_restore_buffers) {
    TORCH_CHECK_VALUE(is_one_of(buffer, options.buffers), "`no_restore_buffers` must be a subset of `buffers`.");
  }
  for (size_t i = 0; i < options.buffers.size(); ++i) {
    const auto& buffer = options.buffers[i];
    TORCH_CHECK_VALUE(!buffer.requires_grad(), "[cohort] ContextParallel: buffer ", i,
                      " requires a gradient, so its size cannot change\n  hint: shard tensors that autograd follows "
                      "with shard_sequence()");
    for (size_t before = 0; before < i; ++before) {
      TORCH_CHECK_VALUE(!buffer.is_same(options.buffers[before]), "[cohort] ContextParallel: buffers ", before, " and ",
                        i, " are the same tensor");
    }
  }
}

}  // namespace

struct ContextParallel::State {
  parallel::ContextCall call;
  std::vector<std::pair<at::Tensor, at::Tensor>> full_buffers = {};  // a buffer, and its full tensor to restore

  explicit State(parallel::ContextCall what) : call(std::move(what)) {
    const parallel::ContextCall* none = nullptr;
    TORCH_CHECK(open_scope.compare_exchange_strong(none, &call),
                "[cohort] ContextParallel: another scope is open\n  hint: end it first; scopes do not nest");
  }
  ~State() {
    open_scope = nullptr;
    for (const auto& [buffer, full] : full_buffers) buffer.set_data(full);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

ContextParallel::ContextParallel(const DeviceMesh& mesh, const ContextParallelOptions& options)
    : ContextParallel(mesh.group(), options) {}

ContextParallel::ContextParallel(const Group& group, const ContextParallelOptions& options) {
  check(options);
  stand_before_attention();
  const at::NoGradGuard no_grad;
  const auto layout = layout_of(options.load_balance);
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < options.buffers.size(); ++i) {
    parts.push_back(parallel::shard_sequence(options.buffers[i], options.buffer_seq_dims[i], layout, group));
  }
  state_ = std::make_unique<State>(ContextCall{group, layout, options.attention, options.rotate});
  for (size_t i = 0; i < options.buffers.size(); ++i) {
    const auto& buffer = options.buffers[i];
    if (!is_one_of(buffer, options.no_restore_buffers)) state_->full_buffers.emplace_back(buffer, buffer.detach());
    buffer.set_data(parts[i]);  // other tensors in the same memory keep their values
  }
}

ContextParallel::~ContextParallel() = default;

std::vector<at::Tensor> context_parallel_unshard(const Group& group, const std::vector<at::Tensor>& buffers,
                                                 const std::vector<int64_t>& seq_dims, bool load_balance) {
  check_lists(buffers.size(), seq_dims.size());
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> full_buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    full_buffers.push_back(
        parallel::unshard_sequence(buffers[i], seq_dims[i], layout_of(load_balance), group).contiguous());
  }
  return full_buffers;
}

std::vector<at::Tensor> context_parallel_unshard(const DeviceMesh& mesh, const std::vector<at::Tensor>& buffers,
                                                 const std::vector<int64_t>& seq_dims, bool load_balance) {
  return context_parallel_unshard(mesh.group(), buffers, seq_dims, load_balance);
}

}  // namespace cohort
