// Code that all operations share, sends and receives, barriers, shared tensors.
#include "cohort/comm/shm/shm_backend.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <exception>

#include "cohort/base/log/log.h"
#include "cohort/comm/backend/nan_check.h"
#include "cohort/comm/shm/element_types.h"
#include "cohort/comm/shm/shm_checks.h"
#include "cohort/comm/shm/transfer_work.h"
#include "cohort/comm/tensors/overlap.h"
#include "cohort/comm/tensors/tensor_checks.h"
#include "cohort/comm/watch/unwrapped_training.h"
#include "cohort/job/call_site.h"

namespace cohort::comm {
namespace {

using c10d::OpType;

constexpr ShmOperation kBarrier{"barrier", "shm:barrier", OpType::BARRIER};
constexpr ShmOperation kShmEmpty{"shm_empty", "shm:shm_empty", OpType::UNKNOWN};
constexpr ShmOperation kSend{"send", "shm:send", OpType::SEND, true, false};
constexpr ShmOperation kRecv{"recv", "shm:recv", OpType::RECV, true, false};
constexpr ShmOperation kRecvAnySource{"recv", "shm:recvAnySource", OpType::RECVANYSOURCE, true, false};

c10::intrusive_ptr<c10d::Backend::Options> make_options(const BackendRequest& request) {
  auto options = c10::make_intrusive<c10d::Backend::Options>("shm", request.timeout);
  options->group_name = request.group_name;
  options->global_ranks_in_group = request.global_ranks;
  return options;
}

}  // namespace

ShmBackend::ShmBackend(std::shared_ptr<ShmSession> session, const BackendRequest& request)
    : Backend(request.rank, request.world_size),
      session_(std::move(session)),
      options_(make_options(request)),
      checks_nan_(nan_check_wanted()) {
  init();
}

ShmBackend::~ShmBackend() {
  // Destroyed by an error's unwinding: does not wait for others, who may never come.
  try {
    std::uncaught_exceptions() > 0 ? session_->close() : session_->complete_and_close();
  } catch (...) {  // an interruption; the session is closed
    base::log_warning("the end of a group was interrupted");
  }
}

void ShmBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  session_->set_timeout(timeout);
}

ShmCall ShmBackend::begin(const Request& request, at::TensorList shown, at::TensorList handed_in) {
  const auto* site = job::CallSite::current();
  const ShmCall call{.operation = &request.operation,
                     .sequence = num_collectives_.fetch_add(1, std::memory_order_relaxed) + 1,
                     .timeout = request.timeout,
                     .root = request.root,
                     .tag = 0,
                     .reduce_op = request.reduce_op,
                     .call_site = site ? site : request.caller,
                     .purpose = CalledFor::current()};
  if (request.reduce_op != c10d::ReduceOp::UNUSED || call.purpose) gradients_are_exchanged();
  if (checks_nan_) check_for_nan(describe(call, shown, session_->identity()), handed_in);
  return call;
}

bool ShmBackend::is_profiled() { return at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value(); }

std::optional<ShmBackend::Tensors> ShmBackend::profiled(at::TensorList tensors) {
  if (!is_profiled()) return std::nullopt;
  return tensors.vec();
}

ShmBackend::WorkPtr ShmBackend::barrier(const c10d::BarrierOptions& opts) {
  const Request request{
      .operation = kBarrier, .is_async = opts.asyncOp, .timeout = opts.timeout, .caller = __builtin_return_address(0)};
  return run(request, {}, {}, {},
             [](shm::Group& group, const shm::CallOptions& options) { return group.barrier(options); });
}

bool ShmBackend::barrier_now() {
  return run_directly({.operation = kBarrier}, {}, {},
                      [](shm::Group& group, const shm::CallOptions& options) { return group.barrier(options); });
}

ShmBackend::WorkPtr ShmBackend::transfer(const ShmOperation& operation, Tensors& tensors, int peer, int tag,
                                         const void* caller) {
  check_one(operation.name, tensors);
  gradients_are_exchanged();
  const auto* site = job::CallSite::current();
  const ShmCall call{.operation = &operation,
                     .sequence = ++num_point_to_point_,
                     .timeout = c10d::kUnsetTimeout,
                     .root = peer,
                     .tag = tag,
                     .reduce_op = c10d::ReduceOp::UNUSED,
                     .call_site = site ? site : caller};
  const bool sends = operation.type == OpType::SEND;
  if (!sends) check_can_be_written(operation.name, tensors);
  if (checks_nan_ && sends) check_for_nan(describe(call, tensors, session_->identity()), tensors);
  ContiguousCopies copies;
  auto memory = sends ? copies.sent(tensors[0]) : copies.received(tensors[0]);
  auto work = c10::make_intrusive<TransferWork>(session_, call, tensors, std::move(memory), std::move(copies),
                                                profiled(tensors));
  work->start();
  return work;
}

ShmBackend::WorkPtr ShmBackend::send(Tensors& tensors, int dst, int tag) {
  check_peer("send", dst, rank_, size_);
  return transfer(kSend, tensors, dst, tag, __builtin_return_address(0));
}

ShmBackend::WorkPtr ShmBackend::recv(Tensors& tensors, int src, int tag) {
  check_peer("recv", src, rank_, size_);
  return transfer(kRecv, tensors, src, tag, __builtin_return_address(0));
}

ShmBackend::WorkPtr ShmBackend::recvAnysource(Tensors& tensors, int tag) {
  return transfer(kRecvAnySource, tensors, /*peer=*/-1, tag, __builtin_return_address(0));
}

at::Tensor ShmBackend::make_shared_tensor(c10::IntArrayRef sizes, const at::TensorOptions& options) {
  const auto dtype = c10::typeMetaToScalarType(options.dtype());
  for (const auto size : sizes)
    TORCH_CHECK_VALUE(size >= 0, "[cohort] shm_empty: sizes must not be negative, got ", size);
  const auto num_bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  void* memory = nullptr;
  const Request request{
      .operation = kShmEmpty, .is_async = false, .timeout = c10d::kUnsetTimeout, .caller = __builtin_return_address(0)};
  // An empty tensor has memory, too, so that every rank takes part.
  const auto work = run(request, {}, {}, {}, [&memory, num_bytes](shm::Group& group, const shm::CallOptions& call) {
    return group.allocate(std::max<size_t>(num_bytes, 1), &memory, call);
  });
  work->wait();
  return at::from_blob(memory, sizes, shm::Group::release, options);
}

shm::CommonMemory ShmBackend::make_common_memory(size_t num_bytes, bool has_pages) {
  shm::CommonMemory memory;
  const Request request{
      .operation = kShmEmpty, .is_async = false, .timeout = c10d::kUnsetTimeout, .caller = __builtin_return_address(0)};
  run(request, {}, {}, {}, [&](shm::Group& group, const shm::CallOptions& call) {
    return group.allocate_common(num_bytes, has_pages, &memory, call);
  })->wait();
  return memory;
}

}  // namespace cohort::comm
