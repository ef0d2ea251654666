/// ShmWork: a collective of the backend "shm". Either it has run before the caller gets it, or it waits in its session's queue
/// until somebody waits for it (and then runs it, after everything queued before it) or the session's progress thread runs it,
/// whichever is first.
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

/// Calls the engine, as often as needed, and completes the results. Runs once.
using ShmBody = std::function<shm::Outcome(shm::Group&, const shm::CallOptions&)>;

class ShmWork final : public c10d::Work {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// `profiled`: the profiler's inputs; absent if no profiler is active.
  ShmWork(int rank, const ShmCall& call, Tensors results, const std::optional<Tensors>& profiled);

  /// If nobody has looked at the Work, notes it for the warning at the end: see unawaited_works.h.
  ~ShmWork() override;
  bool isCompleted() override {
    is_awaited_ = true;
    return is_done();
  }
  bool isSuccess() const override { return is_done() && !exception_; }
  std::exception_ptr exception() const override { return is_done() ? exception_ : nullptr; }
  /// Throws c10::Error before completion, and the operation's error after it has failed.
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(); }
  /// Without a timeout, the operation runs in the calling thread unless it already runs in another. Otherwise the progress
  /// thread runs it. Throws c10::DistBackendError if the operation failed or the timeout passes; in the latter case it goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  /// Aborts the group: operations queued behind this one could no longer match those of the other ranks.
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return call_.sequence; }

  // For the session.
  const ShmCall& call() const { return call_; }
  bool is_done() const { return is_done_.load(std::memory_order_acquire); }
  /// Sets what the operation will do, before it is queued. `shown`: see describe().
  void prepare(std::shared_ptr<ShmSession> session, Tensors shown, ShmBody body);
  const Tensors& shown() const { return shown_; }
  const ShmBody& body() const { return body_; }
  /// Ends the operation. Then call announce(), without locks, because it drops the body and runs the future's callbacks.
  void finish_with(std::exception_ptr exception);
  /// As above, for a work that only the calling thread knows.
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
  /// Partner: the threads that wait; orders exception_ and the results before it.
  std::atomic<bool> is_done_ = false;
  std::atomic<bool> is_awaited_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // guarded by mutex_
};

}  // namespace cohort::comm
