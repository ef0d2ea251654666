/// TrackedWork: a c10d::Work that explains its failure and is counted until it has completed.
///
/// Wraps the Work of an engine (Gloo). Semantics are the engine's, with three additions. An exception says which operation
/// failed, where and because of which rank. A rank that waits watches its peers, because an engine may wait for a rank that lives
/// while a dead rank holds up both. An operation that nobody waited for is known at exit, where destroying its group would block
/// until the timeout.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cohort/comm/watch/operation_watch.h"
#include "cohort/job/operation.h"

namespace cohort::comm {

class TrackedWork : public c10d::Work {
 public:
  /// Converts an exception of the engine to a Failure with one cause.
  using Translator = base::Failure (*)(const std::exception&);

  /// `after` (may be empty) runs once, before the Work first reports completion, to finish the results.
  TrackedWork(c10::intrusive_ptr<c10d::Work> work, job::Operation operation, std::shared_ptr<OperationWatch> watch,
              Translator translate, std::function<void()> after = {});
  ~TrackedWork() override;

  /// Makes result() and the future return these tensors instead of the engine's. Call it before anybody waits.
  void replace_result(std::vector<at::Tensor> tensors) { result_ = std::move(tensors); }

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
  bool wait_in_slices();
  base::Failure failure_of_wait(const std::exception& error) const;
  [[noreturn]] void throw_explained(const base::Failure& failure) const;

  c10::intrusive_ptr<c10d::Work> work_;
  job::Operation operation_;
  std::shared_ptr<OperationWatch> watch_;
  Translator translate_;
  std::function<void()> after_;
  std::optional<std::vector<at::Tensor>> result_;
  std::once_flag after_once_;
  std::atomic<bool> is_awaited_ = false;
};

/// Returns the number of this process's operations that were started and then dropped or not yet seen complete. Thread-safe.
size_t num_pending_operations();
/// Waits for dropped operations, each within its timeout. Does not wait for receives, which nobody would see, nor for anything
/// after an operation has failed. Returns: how many have not completed.
size_t complete_pending_operations();

}  // namespace cohort::comm
