/// TransferWork: a send or receive of the backend "shm". It makes progress while somebody waits and in the engine's thread.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "cohort/comm/shm/shm_call.h"
#include "cohort/comm/shm/shm_session.h"
#include "cohort/comm/tensors/contiguous_copies.h"
#include "cohort/shm/transfer/exchange.h"

namespace cohort::comm {

class TransferWork final : public c10d::Work {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// `tensors`: the user's; `memory`: the tensor that the engine moves instead, copied back by `copies`.
  TransferWork(std::shared_ptr<ShmSession> session, const ShmCall& call, Tensors tensors, at::Tensor memory,
               ContiguousCopies copies, const std::optional<Tensors>& profiled);
  /// If nobody waited for the transfer, it goes on, and is noted for the warning at the end: see unawaited_works.h.
  ~TransferWork() override;

  /// Passes it to the engine. Call once.
  void start();

  bool isCompleted() override {
    is_awaited_ = true;
    return complete_if_done();
  }
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(); }
  /// Throws c10::DistBackendError if it failed or the timeout passes.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override { session_->abort(); }
  /// Starts a thread that waits for the completion.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return call_.sequence; }

 private:
  enum class Step { kDone, kMore };
  bool complete_if_done();
  Step wait_a_while(std::chrono::milliseconds limit);
  void settle();
  std::exception_ptr finish_transfer();
  bool set_completed(std::exception_ptr exception);
  void announce();
  void finish_with(std::exception_ptr exception);
  job::Operation operation() const;

  const std::shared_ptr<ShmSession> session_;
  const ShmCall call_;
  const Tensors tensors_;
  const at::Tensor memory_;
  const ContiguousCopies copies_;
  shm::TransferPtr transfer_;
  int source_ = -1;
  std::once_flag settled_;
  std::atomic<bool> is_awaited_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // guarded by mutex_
};

}  // namespace cohort::comm
