#include "cohort/comm/collectives/coalescing.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

#include "cohort/base/log/log.h"
#include "cohort/comm/collectives/arguments.h"
#include "cohort/comm/collectives/coalesced_calls.h"
#include "cohort/job/call_site.h"

namespace cohort {

/// The calls of a rank since it began to coalesce.
struct CoalescingCollector {
  Group group;
  std::vector<comm::CoalescedCall> calls;
};

namespace {

using comm::CoalescedCall;
using Kind = CoalescedCall::Kind;

// The collectors of the calling thread, innermost last.
std::vector<CoalescingCollector*>& collectors() {
  static thread_local std::vector<CoalescingCollector*> list;
  return list;
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kAllGatherSingle:
      return "all_gather_single";
    case Kind::kReduceScatterSingle:
      return "reduce_scatter_single";
  }
  return "";
}

void check_same(const std::vector<CoalescedCall>& calls) {
  const auto& first = calls.front();
  for (const auto& call : calls) {
    TORCH_CHECK(call.kind == first.kind, "Coalescing manager requires all collectives to be the same type, but got ",
                name_of(first.kind), " and ", name_of(call.kind));
    TORCH_CHECK(call.op.op_ == first.op.op_ && call.op.supplement_ == first.op.supplement_,
                "[cohort] Coalescing manager requires one ReduceOp for all collectives");
    TORCH_CHECK(call.input.device() == first.input.device(),
                "[cohort] Coalescing manager requires all tensors on one device, but got ", first.input.device(),
                " and ", call.input.device());
  }
}

WorkPtr run(const CoalescingCollector& collector, bool async_op) {
  check_same(collector.calls);
  const auto& first = collector.calls.front();
  const auto backend = comm::backend_for(collector.group, first.input, name_of(first.kind));
  TensorList inputs;
  TensorList outputs;
  for (const auto& call : collector.calls) {
    inputs.push_back(call.input);
    outputs.push_back(call.output);
  }
  if (first.kind == Kind::kAllReduce) {
    c10d::AllreduceCoalescedOptions options;
    options.reduceOp = first.op;
    options.asyncOp = async_op;
    return backend->allreduce_coalesced(inputs, options);
  }
  if (first.kind == Kind::kAllGatherSingle) {
    c10d::AllgatherOptions options;
    options.asyncOp = async_op;
    return backend->allgather_into_tensor_coalesced(outputs, inputs, options);
  }
  c10d::ReduceScatterOptions options;
  options.reduceOp = first.op;
  options.asyncOp = async_op;
  return backend->reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

}  // namespace

namespace comm {

bool is_coalescing() { return !collectors().empty(); }

bool keep_for_coalescing(const Group& group, Kind kind, const at::Tensor& output, const at::Tensor& input,
                         const ReduceOp& op) {
  for (auto* collector : collectors()) {
    if (collector->group != group) continue;
    collector->calls.push_back({kind, output, input, op});
    return true;
  }
  return false;
}

}  // namespace comm

struct CoalescingManager::State {
  CoalescingCollector collector;
  bool async_ops = false;
  bool finished = false;

  void stop_collecting() {
    if (finished) return;
    finished = true;
    std::erase(collectors(), &collector);
  }
};

CoalescingManager::CoalescingManager(const CoalescingOptions& options) : state_(std::make_unique<State>()) {
  state_->collector.group = comm::resolve(options.group);
  state_->async_ops = options.async_ops;
  for (const auto* other : collectors()) {
    TORCH_CHECK_VALUE(other->group != state_->collector.group,
                      "[cohort] a CoalescingManager is already at work on this group in this thread");
  }
  collectors().push_back(&state_->collector);
}

CoalescingManager::~CoalescingManager() {
  if (!state_->finished && !state_->collector.calls.empty()) {
    base::log_warning("a CoalescingManager ended without finish(): " + std::to_string(state_->collector.calls.size()) +
                      " collective(s) did not run");
  }
  state_->stop_collecting();
}

WorkPtr CoalescingManager::finish() {
  const job::CallSite site(__builtin_return_address(0));
  TORCH_CHECK(!state_->finished, "[cohort] CoalescingManager::finish() was called twice");
  state_->stop_collecting();
  if (state_->collector.calls.empty() || !is_member(state_->collector.group)) return {};
  return comm::finish(run(state_->collector, state_->async_ops), state_->async_ops);
}

WorkPtr all_reduce_coalesced(const TensorList& tensors, const ReduceOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  if (comm::skips(options.group, "all_reduce_coalesced")) return {};
  TORCH_CHECK_VALUE(!tensors.empty(), "[cohort] all_reduce_coalesced needs at least one tensor");
  for (size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK_VALUE(tensors[i].defined(), "[cohort] Invalid tensor for all_reduce_coalesced: tensors[", i,
                      "] is undefined. A parameter that backward did not reach has no gradient.");
  }
  CoalescingCollector collector{comm::resolve(options.group), {}};
  const auto backend = comm::backend_for(collector.group, tensors[0], "all_reduce_coalesced");
  for (const auto& tensor : comm::written(*backend, tensors, "all_reduce_coalesced")) {
    collector.calls.push_back({Kind::kAllReduce, {}, tensor, options.op});
  }
  return comm::finish(run(collector, options.async_op), options.async_op);
}

}  // namespace cohort
