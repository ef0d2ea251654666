#include "cohort/comm/collectives.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "cohort/base/log.h"
#include "cohort/comm/world.h"

namespace cohort {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// PyTorch warns and does nothing when a rank outside the group takes part.
bool skips(const Group& group, const char* operation) {
  if (is_member(group)) return false;
  base::warn_once("Running " + std::string(operation) + " on global rank " + std::to_string(get_rank()) +
                  " which does not belong to the given group.");
  return true;
}

Group resolve(const Group& group) { return group ? group : default_group(); }

// The group's engine for the tensor's device, without a trip through the dispatcher.
BackendPtr backend_for(const Group& group, const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK_VALUE(tensor.defined(), "Invalid tensor for ", operation, ": it is undefined");
  return resolve(group)->getBackend(tensor.device().type());
}

// Complex numbers travel as pairs of reals, which is right for sums and copies only.
at::Tensor as_real(const at::Tensor& tensor) { return tensor.is_complex() ? at::view_as_real(tensor) : tensor; }

void check_reducible(const at::Tensor& tensor, const ReduceOp& op, const char* operation) {
  const bool sums = op == ReduceOp::SUM || op == ReduceOp::AVG;
  TORCH_CHECK_VALUE(!tensor.is_complex() || sums, operation, " does not support this ReduceOp on complex tensors");
}

WorkPtr finish(WorkPtr work, bool async_op) {
  if (!async_op && work) work->wait();
  return work;
}

int group_rank_of(const Group& group, int global_rank) {
  if (!group || group == default_group()) {
    TORCH_CHECK_VALUE(global_rank >= 0 && global_rank < get_world_size(), "Rank ", global_rank,
                      " is out of range. Valid ranks are 0 to ", get_world_size() - 1,
                      " (world_size=", get_world_size(), ")");
    return global_rank;
  }
  return get_group_rank(group, global_rank);
}

void check_elements(const at::Tensor& whole, const at::Tensor& part, const Group& group, const char* operation) {
  const auto size = resolve(group)->getSize();
  TORCH_CHECK_VALUE(whole.numel() == part.numel() * size, operation, " needs a tensor of world_size times ",
                    part.numel(), " = ", part.numel() * size, " elements, got ", whole.numel());
  TORCH_CHECK_VALUE(whole.scalar_type() == part.scalar_type(), operation, " needs tensors of one dtype, got ",
                    whole.scalar_type(), " and ", part.scalar_type());
}

void check_list(const std::vector<at::Tensor>& list, const Group& group, const char* operation) {
  const auto size = static_cast<size_t>(resolve(group)->getSize());
  TORCH_CHECK_VALUE(list.size() == size, operation, " needs one tensor per rank, ", size, ", got ", list.size());
}

std::vector<at::Tensor> as_real(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  result.reserve(tensors.size());
  for (const auto& tensor : tensors) result.push_back(as_real(tensor));
  return result;
}

}  // namespace

WorkPtr all_reduce(const at::Tensor& tensor, const ReduceOptions& options) {
  if (skips(options.group, "all_reduce")) return {};
  check_reducible(tensor, options.op, "all_reduce");
  std::vector<at::Tensor> tensors{as_real(tensor)};
  c10d::AllreduceOptions engine_options;
  engine_options.reduceOp = options.op;
  engine_options.asyncOp = options.async_op;
  const auto backend = backend_for(options.group, tensor, "all_reduce");
  if (tensor.is_sparse()) engine_options.reduceOp = ReduceOp::SUM;
  return finish(backend->allreduce(tensors, engine_options), options.async_op);
}

WorkPtr broadcast(const at::Tensor& tensor, int src, const CollectiveOptions& options) {
  if (skips(options.group, "broadcast")) return {};
  std::vector<at::Tensor> tensors{as_real(tensor)};
  c10d::BroadcastOptions engine_options;
  engine_options.rootRank = group_rank_of(options.group, src);
  engine_options.asyncOp = options.async_op;
  return finish(backend_for(options.group, tensor, "broadcast")->broadcast(tensors, engine_options), options.async_op);
}

WorkPtr all_gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, const CollectiveOptions& options) {
  if (skips(options.group, "all_gather")) return {};
  check_list(outputs, options.group, "all_gather");
  std::vector<std::vector<at::Tensor>> output_lists{as_real(outputs)};
  std::vector<at::Tensor> inputs{as_real(input)};
  c10d::AllgatherOptions engine_options;
  engine_options.asyncOp = options.async_op;
  const auto backend = backend_for(options.group, input, "all_gather");
  return finish(backend->allgather(output_lists, inputs, engine_options), options.async_op);
}

WorkPtr all_gather_single(const at::Tensor& output, const at::Tensor& input, const CollectiveOptions& options) {
  if (skips(options.group, "all_gather_single")) return {};
  check_elements(output, input, options.group, "all_gather_single");
  auto real_output = as_real(output);
  auto real_input = as_real(input);
  c10d::AllgatherOptions engine_options;
  engine_options.asyncOp = options.async_op;
  const auto backend = backend_for(options.group, input, "all_gather_single");
  return finish(backend->_allgather_base(real_output, real_input, engine_options), options.async_op);
}

WorkPtr reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, const ReduceOptions& options) {
  if (skips(options.group, "reduce_scatter")) return {};
  check_list(inputs, options.group, "reduce_scatter");
  check_reducible(output, options.op, "reduce_scatter");
  std::vector<at::Tensor> outputs{as_real(output)};
  std::vector<std::vector<at::Tensor>> input_lists{as_real(inputs)};
  c10d::ReduceScatterOptions engine_options;
  engine_options.reduceOp = options.op;
  engine_options.asyncOp = options.async_op;
  const auto backend = backend_for(options.group, output, "reduce_scatter");
  return finish(backend->reduce_scatter(outputs, input_lists, engine_options), options.async_op);
}

WorkPtr reduce_scatter_single(const at::Tensor& output, const at::Tensor& input, const ReduceOptions& options) {
  if (skips(options.group, "reduce_scatter_single")) return {};
  check_elements(input, output, options.group, "reduce_scatter_single");
  check_reducible(output, options.op, "reduce_scatter_single");
  auto real_output = as_real(output);
  auto real_input = as_real(input);
  c10d::ReduceScatterOptions engine_options;
  engine_options.reduceOp = options.op;
  engine_options.asyncOp = options.async_op;
  const auto backend = backend_for(options.group, output, "reduce_scatter_single");
  return finish(backend->_reduce_scatter_base(real_output, real_input, engine_options), options.async_op);
}

WorkPtr all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const CollectiveOptions& options) {
  return all_gather_single(output, input, options);
}

WorkPtr reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, const ReduceOptions& options) {
  return reduce_scatter_single(output, input, options);
}

WorkPtr isend(const at::Tensor& tensor, int dst, const PointToPointOptions& options) {
  if (skips(options.group, "isend")) return {};
  const int peer = group_rank_of(options.group, dst);
  TORCH_CHECK_VALUE(peer != get_rank(options.group),
                    "Invalid destination rank: destination rank should not be the same as "
                    "the rank of the current process.");
  std::vector<at::Tensor> tensors{as_real(tensor)};
  return backend_for(options.group, tensor, "isend")->send(tensors, peer, options.tag);
}

WorkPtr irecv(const at::Tensor& tensor, std::optional<int> src, const PointToPointOptions& options) {
  if (skips(options.group, "irecv")) return {};
  std::vector<at::Tensor> tensors{as_real(tensor)};
  const auto backend = backend_for(options.group, tensor, "irecv");
  if (!src) return backend->recvAnysource(tensors, options.tag);
  const int peer = group_rank_of(options.group, *src);
  TORCH_CHECK_VALUE(peer != get_rank(options.group),
                    "Invalid source rank: source rank should not be the same as the rank "
                    "of the current process.");
  return backend->recv(tensors, peer, options.tag);
}

void send(const at::Tensor& tensor, int dst, const PointToPointOptions& options) {
  if (const auto work = isend(tensor, dst, options)) work->wait();
}

int recv(const at::Tensor& tensor, std::optional<int> src, const PointToPointOptions& options) {
  const auto work = irecv(tensor, src, options);
  if (!work) return -1;
  work->wait();
  if (src) return *src;
  const int sender = work->sourceRank();
  return options.group ? get_global_rank(options.group, sender) : sender;
}

WorkPtr barrier(const CollectiveOptions& options) {
  if (skips(options.group, "barrier")) return {};
  c10d::BarrierOptions engine_options;
  engine_options.asyncOp = options.async_op;
  const auto backend = resolve(options.group)->getBackend(c10::DeviceType::CPU);
  return finish(backend->barrier(engine_options), options.async_op);
}

}  // namespace cohort
