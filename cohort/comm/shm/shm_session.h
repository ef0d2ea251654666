/// ShmSession: one rank's membership in a group of the backend "shm": the engine's group, who runs operations on it (WorkQueue,
/// RunningOperation), and how that ends. Shared by the backend and its Works, so that either may go first.
///
/// [Note: who runs what] Operations run one at a time, in order, under run_mutex_. A synchronous one runs in the caller if
/// nothing is queued before it. An asynchronous one is queued; whoever waits for it runs the queue up to it. The progress
/// thread, which starts with the first of them, takes what nobody waits for. Where ranks have no cores to spare it would only
/// take time from the caller, who will most likely wait soon: then it gives the caller a millisecond first, and looks at the
/// queue by itself while there is traffic, so that queueing wakes nobody. A future cannot run the queue when it is waited for,
/// as c10d::Reducer does: there, who asks for the future gives the other ranks a moment to come, and runs the operation if
/// they do. Only a moment: a program may count on an asynchronous operation not to wait for ranks.
/// Callbacks of a future may wait for later operations, as PyTorch's PowerSGD does. So the progress thread that runs them gives
/// up the lead; as soon as somebody needs the queue another one has it. There are as many as ever waited at once, and one.
///
/// [Note: foreign code] What a work or a transfer holds may be the last reference to a tensor that Python knows, and a future's
/// callbacks are anybody's. Both may wait for Python's lock. So no lock of this class is held while a work, its body or a
/// future goes, and who may hold Python's lock gives it up before it waits for run_mutex_ or for a thread (HostUnlocked). Held
/// over an operation, run_mutex_ may also be held while signals are looked for, which takes Python's lock. The other locks are
/// held for moments, in which nothing but our own code runs.
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

  /// Makes a call and runs it, unless others are queued before it: then returns false. Throws what a Work's wait() would.
  bool run_now(CallMaker make_call, at::TensorList shown, BodyRef body);
  /// The same for a work that nobody else knows, and which keeps the exception.
  bool run_now(ShmWork& work, at::TensorList shown, BodyRef body);
  /// Takes a prepared work.
  void enqueue(WorkPtr work);
  /// Blocks until `work` is done, running it and what is queued before it.
  void run_through(ShmWork& work);
  /// Somebody will wait for `work` who cannot run the queue. If it is the next and the other ranks come to it within a moment,
  /// it runs at once in the calling thread; else the progress thread gives the caller no more time.
  void run_or_hurry(ShmWork& work);
  /// The progress thread must no longer give the caller time: somebody waits who cannot run the queue.
  void hurry() { queue_.hurry(); }

  /// Ends what runs and what is queued with an error, and refuses what comes.
  void abort();
  /// Runs what was started and nobody waits for, sends included, each within its time-out. Others may count on it: they call
  /// the same operations. Receives stay as they are. Returns: how many could not be completed. Throws an interruption.
  size_t complete() override;
  /// Ends what is left with an error, and leaves the group. Afterwards every operation fails. Effective once.
  void close() override;
  /// For the end of the group: complete(), a warning if something is lost, and close().
  void complete_and_close();
  /// Operations queued or running, sends and receives included.
  size_t num_pending() override;

  /// The engine's exchange as long as the lock is held; null after close().
  struct OpenExchange {
    std::shared_lock<std::shared_mutex> lock;
    shm::Exchange* exchange = nullptr;
  };
  OpenExchange exchange();
  /// Why exchange() gave none.
  base::Failure refusal() const;
  SessionTransfers& transfers() { return transfers_; }

  shm::CallOptions options_of(const ShmCall& call) const;
  OperationWatch* watch() const { return watch_.get(); }
  /// An operation has failed, so that nobody counts on the others any more.
  bool has_failed() const { return has_failed_; }
  /// The exception that users get.
  std::exception_ptr to_exception(const ShmCall& call, at::TensorList shown, base::Failure failure) const;

 private:
  /// Counts an operation as running, under run_mutex_; one within another is one more.
  class Running {
   public:
    explicit Running(std::atomic<size_t>& count) : count_(count) { change_by(1); }
    ~Running() { change_by(-1); }

   private:
    // Under run_mutex_: nobody else writes.
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
  /// The same again: false, or what to throw, or null.
  bool run_now(CallMaker make_call, at::TensorList shown, BodyRef body, std::exception_ptr& exception);
  std::exception_ptr execute(const ShmCall& call, at::TensorList shown, BodyRef body, Runner runner);
  bool keeps_core(Runner runner) const;
  /// Runs the front of the queue, and gives it back for whoever is to announce it; null if there is none.
  WorkPtr run_front(Runner runner);
  bool run_with_others(const ShmWork& work);
  std::unique_lock<std::timed_mutex> wait_to_run();
  void refuse(ShmWork& work, const base::Failure& failure);
  void fail_queue(const base::Failure& failure);
  void complete_queue();
  void complete_sends();
  /// Others may still wait for a third rank in an operation in which this one had no need to wait.
  void settle();
  void warn_of_lost(size_t count) const;
  bool is_forked_child() const;
  void forget();

  /// The process that joined; in a forked child there is nothing to close, and nothing may be called.
  const int owner_;
  const uint64_t num_forks_;
  const ShmIdentity identity_;
  const std::shared_ptr<OperationWatch> watch_;
  const Cores cores_;
  const bool shares_tensors_;
  const std::vector<shm::SharedMemoryPtr> arenas_;
  std::atomic<std::chrono::milliseconds> timeout_;

  /// Held while group_ is used by other threads than the one that runs operations, and (alone) while it is destroyed.
  mutable std::shared_mutex lifetime_;
  std::unique_ptr<shm::Group> group_;

  /// Held while an operation runs.
  std::timed_mutex run_mutex_;
  RunningOperation running_;
  std::exception_ptr first_lost_;
  size_t num_lost_ = 0;  ///< during complete()

  WorkQueue queue_;
  std::atomic<size_t> num_running_ = 0;  ///< those that are about to run included
  std::atomic<size_t> num_running_in_background_ = 0;
  std::atomic<bool> has_failed_ = false;
  SessionTransfers transfers_;
};

}  // namespace cohort::comm
