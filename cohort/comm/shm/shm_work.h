/// ShmWork: a collective of the backend "shm". Either it has run before it is handed out, or it waits in its session's queue
/// for the first of: somebody who waits for it (and then runs it, after all that was queued before it), or the session's
/// progress thread.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/comm/shm/shm_call.h"
#include "cohort/shm/engine/group.h"

namespace cohort::comm {

class ShmSession;

/// Calls the engine, as often as it takes, and does what is left to do with the results. Runs once.
using ShmBody = std::function<shm::Outcome(shm::Group&, const shm::CallOptions&)>;

class ShmWork final : public c10d::Work {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// `profiled`: the profiler's inputs, or nothing when no profiler looks.
  ShmWork(int rank, const ShmCall& call, Tensors results, const std::optional<Tensors>& profiled);

  /// One that nobody has looked at is named at the end: see unawaited_works.h.
  ~ShmWork() override;
  bool isCompleted() override {
    is_awaited_ = true;
    return is_done();
  }
  bool isSuccess() const override { return is_done() && !exception_; }
  std::exception_ptr exception() const override { return is_done() ? exception_ : nullptr; }
  /// Throws c10::Error before completion, and what the operation threw.
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(); }
  /// Without a time-out the operation runs in the calling thread unless it already runs in another. With one, the progress
  /// thread runs it. Throws c10::DistBackendError when the operation failed or the time is over; in this case it goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  /// Aborts the group: what was queued behind this operation could not match the other ranks' any more.
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return call_.sequence; }

  // For the session.
  const ShmCall& call() const { return call_; }
  bool is_done() const { return is_done_.load(std::memory_order_acquire); }
  /// Before it is queued: what it will do. `shown`: see describe().
  void prepare(std::shared_ptr<ShmSession> session, Tensors shown, ShmBody body);
  const Tensors& shown() const { return shown_; }
  const ShmBody& body() const { return body_; }
  /// Ends the operation; then announce(), without locks, as it drops the body and runs the callbacks of the future.
  void finish_with(std::exception_ptr exception);
  /// The same for a work that only the calling thread knows.
  void finish_unseen(std::exception_ptr exception) {
    exception_ = std::move(exception);
    is_done_.store(true, std::memory_order_relaxed);
    if (recordFunctionEndCallback_) announce();
  }
  void announce();
  bool has_future();

 private:
  bool wait_for_others(std::chrono::milliseconds timeout);

  const ShmCall call_;
  Tensors results_;
  Tensors shown_;
  ShmBody body_;
  std::shared_ptr<ShmSession> session_;
  /// Partner: those who wait; orders exception_ and the results before it.
  std::atomic<bool> is_done_ = false;
  std::atomic<bool> is_awaited_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // guarded by mutex_
};

}  // namespace cohort::comm
