#include "cohort/comm/shm/shm_work.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include "cohort/base/system/deadline.h"
#include "cohort/comm/backend/host_program.h"
#include "cohort/comm/shm/shm_session.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/comm/watch/unawaited_works.h"

namespace cohort::comm {

ShmWork::ShmWork(int rank, const ShmCall& call, Tensors results, const std::optional<Tensors>& profiled)
    : Work(rank, call.operation->type, profiled ? call.operation->title : nullptr, profiled),
      call_(call),
      results_(std::move(results)) {}

ShmWork::~ShmWork() {
  if (!session_ || is_awaited_ || !is_done() || exception_ || call_.purpose) return;
  note_unawaited(call_.operation->name, call_.sequence, session_->identity().group, UnawaitedOn::kAllRanks);
}

void ShmWork::prepare(std::shared_ptr<ShmSession> session, Tensors shown, ShmBody body) {
  session_ = std::move(session);
  shown_ = std::move(shown);
  body_ = std::move(body);
}

void ShmWork::finish_with(std::exception_ptr exception) {
  {
    const std::lock_guard lock(mutex_);
    exception_ = std::move(exception);
    is_done_.store(true, std::memory_order_release);
  }
  cv_.notify_all();
}

bool ShmWork::has_future() {
  const std::lock_guard lock(mutex_);
  return future_ != nullptr;
}

void ShmWork::announce() {
  body_ = nullptr;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    future.swap(future_);
  }
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
  if (!future) return;
  if (exception_) {
    future->setError(exception_);
  } else {
    future->markCompleted(c10::IValue(results_));
  }
}

std::vector<at::Tensor> ShmWork::result() {
  TORCH_CHECK(is_done(), "Work needs to be completed before calling result(). Should call wait() before result().");
  if (exception_) std::rethrow_exception(exception_);
  return results_;
}

bool ShmWork::wait_for_others(std::chrono::milliseconds timeout) {
  session_->hurry();
  std::unique_lock lock(mutex_);
  return cv_.wait_until(lock, base::deadline_after(timeout), [this] { return is_done(); });
}

bool ShmWork::wait(std::chrono::milliseconds timeout) {
  is_awaited_ = true;
  if (!is_done()) {
    if (timeout == kNoTimeout) {
      session_->run_through(*this);
    } else if (!wait_for_others(timeout)) {
      throw_failure(wait_timed_out(describe(call_, shown_, session_->identity()), timeout));
    }
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

void ShmWork::abort() {
  if (!is_done()) session_->abort();
}

c10::intrusive_ptr<c10::ivalue::Future> ShmWork::getFuture() {
  is_awaited_ = true;
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    waits = !is_done();
    if (waits) future_ = future;
  }
  if (waits) {
    const HostUnlocked unlocked;
    session_->run_or_hurry(*this);
  } else if (exception_) {
    future->setError(exception_);
  } else {
    future->markCompleted(c10::IValue(results_));
  }
  return future;
}

}  // namespace cohort::comm
