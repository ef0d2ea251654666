#include "cohort/comm/collectives/collectives.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "cohort/base/system/deadline.h"
#include "cohort/comm/backend/direct_collectives.h"
#include "cohort/comm/backend/unwanted_work.h"
#include "cohort/comm/collectives/arguments.h"
#include "cohort/comm/collectives/coalesced_calls.h"
#include "cohort/comm/group/device.h"
#include "cohort/comm/group/world.h"
#include "cohort/comm/registry/backends.h"
#include "cohort/job/call_site.h"

namespace cohort {
namespace {

using comm::backend_for;
using comm::CoalescedCall;
using comm::DirectCollectives;
using comm::finish;
using comm::finished_work;
using comm::resolve;
using comm::sent;
using comm::sent_alone;
using comm::skips;
using comm::to_group_rank;
using comm::written;
using comm::written_alone;

void check_reducible(const at::Tensor& tensor, const ReduceOp& op, const char* operation) {
  if (!tensor.defined() || !tensor.is_complex()) return;
  const bool sums = op == ReduceOp::SUM || op == ReduceOp::AVG || op == ReduceOp::PREMUL_SUM;
  TORCH_CHECK_VALUE(sums, "[cohort] ", operation, " does not support this ReduceOp on complex tensors");
}

// Sets the supplement by the name that all supported releases have; ReduceOp's own constructor does not keep it.
template <class Factor>
ReduceOp with_factor(const Factor& factor) {
  ReduceOp op;
  op.op_ = ReduceOp::PREMUL_SUM;
  op.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(factor);
  return op;
}

void check_elements(const at::Tensor& whole, const at::Tensor& part, const Group& group, const char* operation) {
  comm::check_alike(whole, part, operation);
  const auto size = resolve(group)->getSize();
  TORCH_CHECK_VALUE(whole.numel() == part.numel() * size, "[cohort] ", operation,
                    " needs a tensor of world_size times ", part.numel(), " = ", part.numel() * size, " elements, got ",
                    whole.numel());
}

// Checks for one entry per rank, of the dtype and device of `like`.
void check_list(const TensorList& list, const at::Tensor& like, const Group& group, const char* operation) {
  const auto size = static_cast<size_t>(resolve(group)->getSize());
  TORCH_CHECK_VALUE(list.size() == size, "[cohort] ", operation, " needs one tensor per rank, ", size, ", got ",
                    list.size());
  auto all = list;
  all.insert(all.begin(), like);
  comm::check_alike(all, operation);
}

void check_splits(const at::Tensor& tensor, const std::vector<int64_t>& splits, const Group& group, const char* side) {
  const auto size = resolve(group)->getSize();
  const auto rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "[cohort] all_to_all_single: the ", side, " tensor's dim 0 is ", rows,
                      ", which does not divide equally among ", size, " ranks; give ", side, "_split_sizes");
    return;
  }
  TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(size), "[cohort] all_to_all_single: ", side,
                    "_split_sizes needs one number per rank, ", size, ", got ", splits.size());
  int64_t sum = 0;
  for (const auto split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "[cohort] all_to_all_single: ", side, "_split_sizes must not be negative, got ",
                      split);
    sum += split;
  }
  TORCH_CHECK_VALUE(sum == rows, "[cohort] all_to_all_single: ", side, "_split_sizes add up to ", sum, ", but the ",
                    side, " tensor's dim 0 is ", rows);
}

// For gather and scatter: only the root has a list.
void check_root_list(const TensorList& list, const at::Tensor& mine, const Group& group, bool is_root,
                     const char* operation, const char* argument) {
  TORCH_CHECK_VALUE(is_root || list.empty(), "[cohort] ", operation, ": ", argument,
                    " must be empty on ranks other than the root");
  if (is_root) check_list(list, mine, group, operation);
}

// Whether `call(direct)` has run the call: the shorter way, for a synchronous call on simple tensors.
template <class Call>
bool has_run_directly(c10d::Backend& backend, bool async_op, Call call) {
  if (async_op || comm::is_coalescing()) return false;
  auto* const direct = comm::direct_collectives(backend);
  return direct && call(*direct);
}

}  // namespace

ReduceOp premul_sum(double factor) { return with_factor(factor); }

ReduceOp premul_sum(const at::Tensor& factor) {
  TORCH_CHECK_VALUE(factor.defined() && factor.numel() == 1, "[cohort] premul_sum needs a factor of one element, got ",
                    factor.defined() ? factor.numel() : 0);
  return with_factor(factor);
}

WorkPtr all_reduce(const at::Tensor& tensor, const ReduceOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  if (skips(options.group, "all_reduce")) return {};
  const auto backend = backend_for(options.group, tensor, "all_reduce");
  if (has_run_directly(*backend, options.async_op,
                       [&](DirectCollectives& direct) { return direct.all_reduce_now(tensor, options.op); })) {
    return finished_work();
  }
  const comm::UnwantedWork unwanted(!options.async_op);
  check_reducible(tensor, options.op, "all_reduce");
  auto tensors = written_alone(*backend, tensor, "all_reduce");
  if (comm::keep_for_coalescing(resolve(options.group), CoalescedCall::Kind::kAllReduce, {}, tensors[0], options.op)) {
    return {};
  }
  c10d::AllreduceOptions engine_options;
  engine_options.reduceOp = options.op;
  engine_options.asyncOp = options.async_op;
  return finish(backend->allreduce(tensors, engine_options), options.async_op);
}

WorkPtr broadcast(const at::Tensor& tensor, RankArgument src, const CollectiveOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  if (skips(options.group, "broadcast")) return {};
  const auto backend = backend_for(options.group, tensor, "broadcast");
  const int root = to_group_rank(options.group, src);
  if (has_run_directly(*backend, options.async_op,
                       [&](DirectCollectives& direct) { return direct.broadcast_now(tensor, root); })) {
    return finished_work();
  }
  const comm::UnwantedWork unwanted(!options.async_op);
  auto tensors =
      root == backend->getRank() ? sent_alone(*backend, tensor) : written_alone(*backend, tensor, "broadcast");
  c10d::BroadcastOptions engine_options;
  engine_options.rootRank = root;
  engine_options.asyncOp = options.async_op;
  return finish(backend->broadcast(tensors, engine_options), options.async_op);
}

WorkPtr reduce(const at::Tensor& tensor, RankArgument dst, const ReduceOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  if (skips(options.group, "reduce")) return {};
  check_reducible(tensor, options.op, "reduce");
  const auto backend = backend_for(options.group, tensor, "reduce");
  const int root = to_group_rank(options.group, dst);
  if (has_run_directly(*backend, options.async_op,
                       [&](DirectCollectives& direct) { return direct.reduce_now(tensor, options.op, root); })) {
    return finished_work();
  }
  const comm::UnwantedWork unwanted(!options.async_op);
  auto tensors = written_alone(*backend, tensor, "reduce");
  c10d::ReduceOptions engine_options;
  engine_options.reduceOp = options.op;
  engine_options.rootRank = root;
  engine_options.asyncOp = options.async_op;
  return finish(backend->reduce(tensors, engine_options), options.async_op);
}

WorkPtr all_gather(const TensorList& outputs, const at::Tensor& input, const CollectiveOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  const comm::UnwantedWork unwanted(!options.async_op);
  if (skips(options.group, "all_gather")) return {};
  const auto backend = backend_for(options.group, input, "all_gather");
  check_list(outputs, input, options.group, "all_gather");
  std::vector<TensorList> output_lists{written(*backend, outputs, "all_gather")};
  auto inputs = sent_alone(*backend, input);
  c10d::AllgatherOptions engine_options;
  engine_options.asyncOp = options.async_op;
  return finish(backend->allgather(output_lists, inputs, engine_options), options.async_op);
}

WorkPtr all_gather_single(const at::Tensor& output, const at::Tensor& input, const CollectiveOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  if (skips(options.group, "all_gather_single")) return {};
  const auto backend = backend_for(options.group, input, "all_gather_single");
  if (has_run_directly(*backend, options.async_op,
                       [&](DirectCollectives& direct) { return direct.all_gather_now(output, input); })) {
    return finished_work();
  }
  const comm::UnwantedWork unwanted(!options.async_op);
  check_elements(output, input, options.group, "all_gather_single");
  auto engine_output = written(*backend, output, "all_gather_single");
  auto engine_input = sent(*backend, input);
  if (comm::keep_for_coalescing(resolve(options.group), CoalescedCall::Kind::kAllGatherSingle, engine_output,
                                engine_input)) {
    return {};
  }
  c10d::AllgatherOptions engine_options;
  engine_options.asyncOp = options.async_op;
  return finish(backend->_allgather_base(engine_output, engine_input, engine_options), options.async_op);
}

WorkPtr gather(const at::Tensor& input, const TensorList& outputs, RankArgument dst, const CollectiveOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  const comm::UnwantedWork unwanted(!options.async_op);
  if (skips(options.group, "gather")) return {};
  const auto backend = backend_for(options.group, input, "gather");
  c10d::GatherOptions engine_options;
  engine_options.rootRank = to_group_rank(options.group, dst);
  engine_options.asyncOp = options.async_op;
  const bool is_root = engine_options.rootRank == backend->getRank();
  check_root_list(outputs, input, options.group, is_root, "gather", "outputs");
  std::vector<TensorList> output_lists;
  if (is_root) output_lists.push_back(written(*backend, outputs, "gather"));
  auto inputs = sent_alone(*backend, input);
  return finish(backend->gather(output_lists, inputs, engine_options), options.async_op);
}

WorkPtr scatter(const at::Tensor& output, const TensorList& inputs, RankArgument src,
                const CollectiveOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  const comm::UnwantedWork unwanted(!options.async_op);
  if (skips(options.group, "scatter")) return {};
  const auto backend = backend_for(options.group, output, "scatter");
  c10d::ScatterOptions engine_options;
  engine_options.rootRank = to_group_rank(options.group, src);
  engine_options.asyncOp = options.async_op;
  const bool is_root = engine_options.rootRank == backend->getRank();
  check_root_list(inputs, output, options.group, is_root, "scatter", "inputs");
  std::vector<TensorList> input_lists;
  if (is_root) input_lists.push_back(sent(*backend, inputs));
  auto outputs = written_alone(*backend, output, "scatter");
  return finish(backend->scatter(outputs, input_lists, engine_options), options.async_op);
}

WorkPtr reduce_scatter(const at::Tensor& output, const TensorList& inputs, const ReduceOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  const comm::UnwantedWork unwanted(!options.async_op);
  if (skips(options.group, "reduce_scatter")) return {};
  const auto backend = backend_for(options.group, output, "reduce_scatter");
  check_list(inputs, output, options.group, "reduce_scatter");
  check_reducible(output, options.op, "reduce_scatter");
  auto outputs = written_alone(*backend, output, "reduce_scatter");
  std::vector<TensorList> input_lists{sent(*backend, inputs)};
  c10d::ReduceScatterOptions engine_options;
  engine_options.reduceOp = options.op;
  engine_options.asyncOp = options.async_op;
  return finish(backend->reduce_scatter(outputs, input_lists, engine_options), options.async_op);
}

WorkPtr reduce_scatter_single(const at::Tensor& output, const at::Tensor& input, const ReduceOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  if (skips(options.group, "reduce_scatter_single")) return {};
  const auto backend = backend_for(options.group, output, "reduce_scatter_single");
  if (has_run_directly(*backend, options.async_op, [&](DirectCollectives& direct) {
        return direct.reduce_scatter_now(output, input, options.op);
      })) {
    return finished_work();
  }
  const comm::UnwantedWork unwanted(!options.async_op);
  check_elements(input, output, options.group, "reduce_scatter_single");
  check_reducible(output, options.op, "reduce_scatter_single");
  auto engine_output = written(*backend, output, "reduce_scatter_single");
  auto engine_input = sent(*backend, input);
  if (comm::keep_for_coalescing(resolve(options.group), CoalescedCall::Kind::kReduceScatterSingle, engine_output,
                                engine_input, options.op)) {
    return {};
  }
  c10d::ReduceScatterOptions engine_options;
  engine_options.reduceOp = options.op;
  engine_options.asyncOp = options.async_op;
  return finish(backend->_reduce_scatter_base(engine_output, engine_input, engine_options), options.async_op);
}

WorkPtr all_to_all(const TensorList& outputs, const TensorList& inputs, const CollectiveOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  const comm::UnwantedWork unwanted(!options.async_op);
  if (skips(options.group, "all_to_all")) return {};
  const auto size = static_cast<size_t>(resolve(options.group)->getSize());
  TORCH_CHECK_VALUE(inputs.size() == size, "[cohort] all_to_all needs one tensor per rank, ", size, ", got ",
                    inputs.size());
  check_list(outputs, inputs[0], options.group, "all_to_all");
  check_list(inputs, inputs[0], options.group, "all_to_all");
  const auto backend = backend_for(options.group, inputs[0], "all_to_all");
  auto engine_outputs = written(*backend, outputs, "all_to_all");
  auto engine_inputs = sent(*backend, inputs);
  c10d::AllToAllOptions engine_options;
  engine_options.asyncOp = options.async_op;
  return finish(backend->alltoall(engine_outputs, engine_inputs, engine_options), options.async_op);
}

WorkPtr all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                          const std::vector<int64_t>& output_split_sizes, const std::vector<int64_t>& input_split_sizes,
                          const CollectiveOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  if (skips(options.group, "all_to_all_single")) return {};
  const auto backend = backend_for(options.group, input, "all_to_all_single");
  const bool is_even = output_split_sizes.empty() && input_split_sizes.empty();
  if (is_even && has_run_directly(*backend, options.async_op,
                                  [&](DirectCollectives& direct) { return direct.all_to_all_now(output, input); })) {
    return finished_work();
  }
  const comm::UnwantedWork unwanted(!options.async_op);
  comm::check_alike(output, input, "all_to_all_single");
  check_splits(output, output_split_sizes, options.group, "output");
  check_splits(input, input_split_sizes, options.group, "input");
  auto engine_output = written(*backend, output, "all_to_all_single");
  auto engine_input = sent(*backend, input);
  auto output_splits = output_split_sizes;
  auto input_splits = input_split_sizes;
  c10d::AllToAllOptions engine_options;
  engine_options.asyncOp = options.async_op;
  return finish(backend->alltoall_base(engine_output, engine_input, output_splits, input_splits, engine_options),
                options.async_op);
}

WorkPtr all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const CollectiveOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  return all_gather_single(output, input, options);
}

WorkPtr reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, const ReduceOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  return reduce_scatter_single(output, input, options);
}

WorkPtr barrier(const BarrierOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  if (skips(options.group, "barrier")) return {};
  const auto backend = comm::any_backend(options.group);
  if (!options.timeout &&
      has_run_directly(*backend, options.async_op, [](DirectCollectives& direct) { return direct.barrier_now(); })) {
    return finished_work();
  }
  const comm::UnwantedWork unwanted(!options.async_op);
  c10d::BarrierOptions engine_options;
  engine_options.asyncOp = options.async_op;
  engine_options.device_ids = options.device_ids;
  if (options.device_ids.empty() && comm::capability_of(*backend).owns_gpu) {
    const auto bound = (options.group ? options.group : default_group())->getBoundDeviceId();
    engine_options.device_ids = {bound.value_or(current_device()).index()};  // otherwise NCCL guesses
  }
  if (options.timeout) engine_options.timeout = base::bounded_time(*options.timeout);
  return finish(backend->barrier(engine_options), options.async_op);
}

void monitored_barrier(const MonitoredBarrierOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  if (skips(options.group, "monitored_barrier")) return;
  const auto& record = comm::record_of(options.group);
  TORCH_CHECK_VALUE(comm::capability_of(record.backend).has_monitored_barrier,
                    "monitored_barrier is only implemented for GLOO backend.");
  c10d::BarrierOptions engine_options;
  engine_options.timeout = base::bounded_time(options.timeout.value_or(record.timeout));
  TORCH_CHECK_VALUE(engine_options.timeout.count() > 0, "[cohort] timeout must be positive, got ",
                    engine_options.timeout.count(), " ms");
  comm::any_backend(options.group)->monitoredBarrier(engine_options, options.wait_all_ranks);
}

}  // namespace cohort
