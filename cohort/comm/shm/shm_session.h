/// ShmSession: one rank's membership in a group of the backend "shm": the engine's group, the code that runs operations on it
/// (WorkQueue, RunningOperation), and its end. The backend and its Works share it, so that either may be destroyed first.
///
/// [Note: who runs what] Operations run one at a time, in order, under run_mutex_. A synchronous operation runs in the caller if
/// nothing is queued before it. An asynchronous operation is queued; a thread that waits for it runs the queue up to it. The
/// progress thread, which starts with the first asynchronous operation, runs operations that nobody waits for. If ranks have no
/// spare cores, the progress thread would take time from the caller, which will most likely wait soon. So it gives the caller a
/// millisecond first, and checks the queue by itself while there is traffic, so that queueing wakes nobody. A thread that waits
/// for a future, as c10d::Reducer does, cannot run the queue. So the thread that asks for the future gives the other ranks a
/// moment to come, and runs the operation if they do. Only a moment: a program may rely on an asynchronous operation not to wait
/// for ranks. Callbacks of a future may wait for later operations, as in PyTorch's PowerSGD. So a progress thread that runs
/// callbacks gives up the lead, and another one takes it as soon as the queue is needed. There is one thread more than ever
/// waited at once.
///
/// [Note: foreign code] A work or a transfer may hold the last reference to a tensor that Python knows, and a future's callbacks
/// may be any code. Both may wait for Python's lock. So no lock of this class is held while a work, its body or a future is
/// destroyed, and a thread that may hold Python's lock releases it before it waits for run_mutex_ or for a thread
/// (HostUnlocked). run_mutex_ is held during an operation, also while the operation checks for signals, which takes Python's
/// lock. The other locks are held for moments in which only our own code runs.
///
/// Thread-safety: every function may be called from any thread; run_now and enqueue as the backend: one at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "cohort/comm/backend/backend_request.h"
#include "cohort/comm/backend/background_threads.h"
#include "cohort/comm/shm/session/running_operation.h"
#include "cohort/comm/shm/session/session_transfers.h"
#include "cohort/comm/shm/session/work_queue.h"
#include "cohort/comm/shm/shm_call.h"
#include "cohort/comm/shm/shm_work.h"
#include "cohort/comm/watch/operation_watch.h"
#include "cohort/shm/engine/group.h"
#include "cohort/shm/transfer/exchange.h"

namespace cohort::comm {

class ShmSession final : public BackgroundThreads, public std::enable_shared_from_this<ShmSession> {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<ShmWork>;
  using BodyRef = c10::function_ref<shm::Outcome(shm::Group&, const shm::CallOptions&)>;
  using CallMaker = c10::function_ref<ShmCall()>;

  static std::shared_ptr<ShmSession> create(std::unique_ptr<shm::Group> group, const BackendRequest& request,
                                            Cores cores);
  ~ShmSession() override;

  const ShmIdentity& identity() const { return identity_; }
  /// shm::Group::has_arenas().
  bool shares_tensors() const { return shares_tensors_; }
  const std::vector<shm::SharedMemoryPtr>& arenas() const { return arenas_; }
  void set_timeout(std::chrono::milliseconds timeout);

  /// Makes a call and runs it. Returns false if others are queued before it. Throws what a Work's wait() would.
  bool run_now(CallMaker make_call, at::TensorList shown, BodyRef body);
  /// As above, for a work that only the caller knows; the work keeps the exception.
  bool run_now(ShmWork& work, at::TensorList shown, BodyRef body);
  /// Takes a prepared work.
  void enqueue(WorkPtr work);
  /// Blocks until `work` is done; runs it and everything queued before it.
  void run_through(ShmWork& work);
  /// Prepares for a wait for `work` by code that cannot run the queue. If `work` is the next and the other ranks come to it
  /// within a moment, runs it at once in the calling thread; otherwise the progress thread no longer waits for the caller.
  void run_or_hurry(ShmWork& work);
  /// Makes the progress thread run the queue without waiting for the caller: somebody waits who cannot run the queue.
  void hurry() { queue_.hurry(); }

  /// Ends running and queued operations with an error, and refuses new ones.
  void abort();
  /// Runs operations that have started and that nobody waits for, including sends, each within its timeout: other ranks may wait
  /// for them in the same operations. Receives stay. Returns: how many could not be completed. Throws an interruption.
  size_t complete() override;
  /// Ends what is left with an error, and leaves the group. Afterwards every operation fails. A second call does nothing.
  void close() override;
  /// For the end of the group: calls complete(), warns if something is lost, and calls close().
  void complete_and_close();
  /// Returns the number of operations queued or running, including sends and receives.
  size_t num_pending() override;

  /// The engine's exchange, as long as the lock is held; null after close().
  struct OpenExchange {
    std::shared_lock<std::shared_mutex> lock;
    shm::Exchange* exchange = nullptr;
  };
  OpenExchange exchange();
  /// Returns why exchange() returned null.
  base::Failure refusal() const;
  SessionTransfers& transfers() { return transfers_; }

  shm::CallOptions options_of(const ShmCall& call) const;
  OperationWatch* watch() const { return watch_.get(); }
  /// Whether an operation has failed, so that the other ranks cannot be relied on.
  bool has_failed() const { return has_failed_; }
  /// Returns the exception that users get.
  std::exception_ptr to_exception(const ShmCall& call, at::TensorList shown, base::Failure failure) const;

 private:
  /// Counts an operation as running, under run_mutex_; a nested operation counts, too.
  class Running {
   public:
    explicit Running(std::atomic<size_t>& count) : count_(count) { change_by(1); }
    ~Running() { change_by(-1); }

   private:
    // Called under run_mutex_, so there is one writer.
    void change_by(int difference) {
      const auto count = count_.load(std::memory_order_relaxed) + static_cast<size_t>(difference);
      count_.store(count, std::memory_order_release);
    }
    std::atomic<size_t>& count_;
  };
  enum class Runner { kCaller, kProgressThread };

  ShmSession(std::unique_ptr<shm::Group> group, const BackendRequest& request, Cores cores);

  static const base::Failure& closed();
  std::thread start_progress_thread();
  /// As above, but stores the exception to throw, or null, in `exception`.
  bool run_now(CallMaker make_call, at::TensorList shown, BodyRef body, std::exception_ptr& exception);
  std::exception_ptr execute(const ShmCall& call, at::TensorList shown, BodyRef body, Runner runner);
  bool keeps_core(Runner runner) const;
  /// Runs the front of the queue, and returns it to the caller, which announces it; null if the queue is empty.
  WorkPtr run_front(Runner runner);
  bool run_with_others(const ShmWork& work);
  std::unique_lock<std::timed_mutex> wait_to_run();
  void refuse(ShmWork& work, const base::Failure& failure);
  void fail_queue(const base::Failure& failure);
  void complete_queue();
  void complete_sends();
  /// Lets others finish: they may still wait for a third rank in an operation in which this rank did not have to wait.
  void settle();
  void warn_of_lost(size_t count) const;
  bool is_forked_child() const;
  void forget();

  /// The process that joined. In a forked child there is nothing to close, and nothing may be called.
  const int owner_;
  const uint64_t num_forks_;
  const ShmIdentity identity_;
  const std::shared_ptr<OperationWatch> watch_;
  const Cores cores_;
  const bool shares_tensors_;
  const std::vector<shm::SharedMemoryPtr> arenas_;
  std::atomic<std::chrono::milliseconds> timeout_;

  /// Held while threads other than the one that runs operations use group_, and (exclusively) while it is destroyed.
  mutable std::shared_mutex lifetime_;
  std::unique_ptr<shm::Group> group_;

  /// Held while an operation runs.
  std::timed_mutex run_mutex_;
  RunningOperation running_;
  std::exception_ptr first_lost_;
  size_t num_lost_ = 0;  ///< during complete()

  WorkQueue queue_;
  std::atomic<size_t> num_running_ = 0;  ///< including those about to run
  std::atomic<size_t> num_running_in_background_ = 0;
  std::atomic<bool> has_failed_ = false;
  SessionTransfers transfers_;
};

}  // namespace cohort::comm
