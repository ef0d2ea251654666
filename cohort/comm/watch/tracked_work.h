/// TrackedWork: a c10d::Work that explains its failure and is counted until it has completed.
///
/// Wraps the Work of an engine (Gloo). Semantics are the engine's, with two additions: an exception is turned into one that
/// says which operation failed, where and because of whom; a rank that waits looks after its peers, for an engine may wait
/// on a rank that lives while the one that died holds both up; and an operation that nobody waited for is known at exit, where
/// destroying its group would block until the time-out.
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
  /// What an exception of the engine says, as a Failure with one cause.
  using Translator = base::Failure (*)(const std::exception&);

  /// `after` (may be empty) runs once, before the Work first reports completion: for results that need a last touch.
  TrackedWork(c10::intrusive_ptr<c10d::Work> work, job::Operation operation, std::shared_ptr<OperationWatch> watch,
              Translator translate, std::function<void()> after = {});
  ~TrackedWork() override;

  /// Before anybody waits: result() and the future give these tensors in place of the engine's.
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

/// Operations of this process that have been started and were dropped or not yet seen complete. Thread-safe.
size_t num_pending_operations();
/// Waits for those that were dropped, each within its time-out; not for receives, which nobody would see, and for none after an
/// operation has failed. Returns: how many have not completed.
size_t complete_pending_operations();

}  // namespace cohort::comm
