#include "cohort/comm/shm/transfer_work.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "cohort/base/system/deadline.h"
#include "cohort/comm/backend/host_program.h"
#include "cohort/comm/shm/element_types.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/comm/watch/unawaited_works.h"

namespace cohort::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTransferLookInterval{250};

bool receives(const ShmCall& call) { return call.operation->type != c10d::OpType::SEND; }

}  // namespace

TransferWork::TransferWork(std::shared_ptr<ShmSession> session, const ShmCall& call, Tensors tensors, at::Tensor memory,
                           ContiguousCopies copies, const std::optional<Tensors>& profiled)
    : Work(session->identity().rank, call.operation->type, profiled ? call.operation->title : nullptr, profiled),
      session_(std::move(session)),
      call_(call),
      tensors_(std::move(tensors)),
      memory_(std::move(memory)),
      copies_(std::move(copies)) {}

TransferWork::~TransferWork() {
  const bool has_failed = exception_ || (transfer_ && transfer_->failure()) || session_->has_failed();
  if (!is_awaited_ && !has_failed && !call_.purpose) {
    note_unawaited(call_.operation->name, call_.sequence, session_->identity().group, UnawaitedOn::kThisRank);
  }
  if (!transfer_ || completed_) return;
  session_->transfers().add(-1);
  session_->transfers().keep({std::move(transfer_), memory_, /*is_pending=*/true});
}

void TransferWork::start() {
  const auto open = session_->exchange();
  if (!open.exchange) return finish_with(session_->to_exception(call_, tensors_, session_->refusal()));
  const auto options = session_->options_of(call_);
  const auto elements = elements_of(memory_);
  const int peer = call_.operation->type == c10d::OpType::RECVANYSOURCE ? shm::Exchange::kAnySource : call_.root;
  session_->transfers().add(1);
  transfer_ = receives(call_) ? open.exchange->receive(memory_.data_ptr(), elements, peer, call_.tag, options)
                              : open.exchange->send(memory_.const_data_ptr(), elements, peer, call_.tag, options);
}

// Returns true for the first caller, who must then call announce(), for which others must not wait.
bool TransferWork::set_completed(std::exception_ptr exception) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(completed_, true)) return false;
  exception_ = std::move(exception);
  return true;
}

void TransferWork::announce() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    future.swap(future_);
  }
  if (transfer_) session_->transfers().add(-1);
  if (recordFunctionEndCallback_) recordFunctionEndCallback_();
  if (!future) return;
  if (exception_) {
    future->setError(exception_);
  } else {
    future->markCompleted(c10::IValue(tensors_));
  }
}

void TransferWork::finish_with(std::exception_ptr exception) {
  if (set_completed(std::move(exception))) announce();
}

std::exception_ptr TransferWork::finish_transfer() {
  if (const auto failure = transfer_->failure()) return session_->to_exception(call_, tensors_, *failure);
  if (receives(call_)) source_ = transfer_->source();
  copies_.copy_back();
  return nullptr;
}

void TransferWork::settle() {
  const HostUnlocked unlocked;
  bool is_first = false;
  std::call_once(settled_, [&] { is_first = set_completed(finish_transfer()); });
  if (is_first) announce();
}

bool TransferWork::complete_if_done() {
  {
    const std::lock_guard lock(mutex_);
    if (completed_) return true;
  }
  if (!transfer_ || !transfer_->is_done()) return false;
  settle();
  return true;
}

bool TransferWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

std::exception_ptr TransferWork::exception() const {
  const std::lock_guard lock(mutex_);
  return exception_;
}

int TransferWork::sourceRank() const {
  const std::lock_guard lock(mutex_);
  return source_;
}

std::vector<at::Tensor> TransferWork::result() {
  TORCH_CHECK(isCompleted(), "Work needs to be completed before calling result(). Should call wait() before result().");
  if (const auto failure = exception()) std::rethrow_exception(failure);
  return tensors_;
}

TransferWork::Step TransferWork::wait_a_while(milliseconds limit) {
  if (complete_if_done()) return Step::kDone;
  const auto open = session_->exchange();
  if (!open.exchange) {
    finish_with(session_->to_exception(call_, tensors_, session_->refusal()));
    return Step::kDone;
  }
  if (!open.exchange->wait(transfer_, limit)) return Step::kMore;
  settle();
  return Step::kDone;
}

job::Operation TransferWork::operation() const { return describe(call_, tensors_, session_->identity()); }

bool TransferWork::wait(milliseconds timeout) {
  is_awaited_ = true;
  const bool is_limited = timeout != kNoTimeout;
  const auto deadline = base::deadline_after(timeout);
  for (;;) {
    auto limit = kTransferLookInterval;
    if (is_limited) limit = std::min(limit, base::time_left(deadline));
    if (wait_a_while(std::max(limit, milliseconds(0))) == Step::kDone) break;
    if (is_limited && Clock::now() >= deadline) throw_failure(wait_timed_out(operation(), timeout));
    throw_interruption();
    auto* watch = session_->watch();
    if (!watch) continue;
    const auto obstacle = watch->find_obstacle(operation());
    if (!obstacle.empty()) {
      throw_failure(watch->explain(operation(), {.kind = Failure::Kind::kObstacle, .causes = {obstacle}}));
    }
  }
  if (const auto failure = exception()) std::rethrow_exception(failure);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> TransferWork::getFuture() {
  is_awaited_ = true;
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    if (!completed_) {
      future_ = future;
      // The thread ends with the transfer, which ends at the latest with the group.
      std::thread([self = c10::intrusive_ptr<TransferWork>::reclaim_copy(this)] {
        while (self->wait_a_while(kTransferLookInterval) != Step::kDone) {
        }
      }).detach();
      return future;
    }
  }
  if (const auto failure = exception()) {
    future->setError(failure);
  } else {
    future->markCompleted(c10::IValue(tensors_));
  }
  return future;
}

}  // namespace cohort::comm
