/// WorkQueue: a session's asynchronous operations, in order, and the progress threads that run those that nobody waits for. See
/// [Note: who runs what] in shm_session.h.
///
/// At most one progress thread leads: it takes works from the queue. The others run callbacks of futures, or are spare.
/// Thread-safety: every function may be called from any thread. No lock is held while a work goes, or is announced.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/comm/shm/shm_work.h"

namespace cohort::comm {

/// What the ranks of this host have: fewer cores than ranks, one each, or more.
enum class Cores : uint8_t { kShared, kOwn, kSpare };

/// With cores to spare: so many pauses a thread looks for work before it sleeps, and queueing then wakes nobody.
constexpr int kPausesBeforeSleep = 4000;

class WorkQueue {
 public:
  using WorkPtr = c10::intrusive_ptr<ShmWork>;

  /// `start_thread`: makes a progress thread, which calls lead().
  WorkQueue(Cores cores, std::function<std::thread()> start_thread)
      : cores_(cores), start_thread_(std::move(start_thread)) {}

  /// For a thread that runs operations itself: others are to run before.
  bool has_queued() const { return num_queued_.load(std::memory_order_relaxed) > 0; }
  size_t size() const { return num_queued_.load(); }
  /// Takes `work`, and starts the first progress thread. False after close(): it leaves `work` as it is.
  bool push(WorkPtr& work);
  /// The front of the queue; null if there is none. Requires that the caller counts as running already, so that a work is always
  /// in one place or the other.
  WorkPtr take();
  bool is_front(const ShmWork& work);
  /// The progress thread must no longer give the caller time.
  void hurry();

  /// The life of a progress thread, until close(). `run_front`: runs the front of the queue and returns it; null if there was
  /// none.
  void work_in_background(const std::function<WorkPtr()>& run_front);
  /// Refuses works from now on, and gives back the threads, which end; nothing if it was closed before.
  std::optional<std::vector<std::thread>> close();
  /// In a forked child, which has no such threads.
  void forget_threads();

 private:
  enum class Step : uint8_t { kRan, kLeadLost, kNothingToRun };

  void lead(std::unique_lock<std::mutex>& lock, const std::function<WorkPtr()>& run_front);
  Step run_and_announce(const std::function<WorkPtr()>& run_front);
  bool announce_as_leader(ShmWork& work);
  void appoint();
  void wait_for_work(std::unique_lock<std::mutex>& lock, bool is_quiet);
  bool gives_grace(std::unique_lock<std::mutex>& lock);

  const Cores cores_;
  const std::function<std::thread()> start_thread_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<WorkPtr> queue_;
  std::atomic<size_t> num_queued_ = 0;
  uint64_t num_taken_ = 0;
  bool is_asleep_ = false;
  bool is_in_hurry_ = false;
  bool is_closed_ = false;

  std::vector<std::thread> threads_;
  std::condition_variable spare_;
  bool has_leader_ = false;
  int num_spare_ = 0;
  int num_appointed_ = 0;  // of these, to lead
};

}  // namespace cohort::comm
