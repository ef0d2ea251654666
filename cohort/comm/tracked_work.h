/// TrackedWork: a c10d::Work that explains its failure and is counted until it has completed.
///
/// Wraps the Work of an engine (Gloo). Semantics are the engine's, with two additions: an exception is turned into one that
/// says which operation failed, where and because of whom; a rank that waits looks after its peers, for an engine may wait
/// on a rank that lives while the one that died holds both up; and an operation that nobody waited for is known at exit, where
/// destroying its group would block until the time-out.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cohort/comm/failure_text.h"

namespace cohort::comm {

/// Knows the other ranks of a group. Called in the waiting thread.
class FailureExplainer {
 public:
  virtual ~FailureExplainer() = default;
  /// Turns an engine's exception text into the one users see. `lost`: members seen to be gone while the operation was
  /// waited for, the first of them only, as others may have ended since because of them; empty if none was.
  virtual std::string explain(const OperationInfo& operation, const std::string& engine_text,
                              const std::vector<int>& lost) const = 0;
  /// Members whose process is gone.
  virtual std::vector<int> lost_members() const = 0;
};

class TrackedWork : public c10d::Work {
 public:
  /// `after` (may be empty) runs once, before the Work first reports completion: for results that need a last touch.
  TrackedWork(c10::intrusive_ptr<c10d::Work> work, OperationInfo operation,
              std::shared_ptr<const FailureExplainer> explainer, std::function<void()> after = {});
  ~TrackedWork() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return work_->sourceRank(); }
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override { work_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return operation_.sequence; }

 private:
  void run_after();
  bool wait_for_engine(std::chrono::milliseconds timeout);
  [[noreturn]] void throw_explained(const std::exception& error) const;

  c10::intrusive_ptr<c10d::Work> work_;
  OperationInfo operation_;
  std::shared_ptr<const FailureExplainer> explainer_;
  std::function<void()> after_;
  std::once_flag after_once_;
  std::vector<int> lost_;
};

/// Operations of this process that have been started and were dropped or not yet seen complete. Thread-safe.
size_t num_pending_operations();

}  // namespace cohort::comm
