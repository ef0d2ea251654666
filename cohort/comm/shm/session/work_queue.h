/// WorkQueue: a session's asynchronous operations, in order, and the progress threads that run operations that nobody waits for.
/// See [Note: who runs what] in shm_session.h.
///
/// At most one progress thread leads: it takes works from the queue. The others run callbacks of futures, or are idle.
/// Thread-safety: every function may be called from any thread. No lock is held while a work is destroyed or announced.
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

/// The cores of this host: fewer than ranks, one for each, or more.
enum class Cores : uint8_t { kShared, kOwn, kSpare };

/// If there are spare cores: the number of pauses in which a thread looks for work before it sleeps, so that queueing wakes
/// nobody.
constexpr int kPausesBeforeSleep = 4000;

class WorkQueue {
 public:
  using WorkPtr = c10::intrusive_ptr<ShmWork>;

  /// `start_thread`: starts a progress thread, which calls lead().
  WorkQueue(Cores cores, std::function<std::thread()> start_thread)
      : cores_(cores), start_thread_(std::move(start_thread)) {}

  /// Whether a thread that wants to run an operation itself must run others first.
  bool has_queued() const { return num_queued_.load(std::memory_order_relaxed) > 0; }
  size_t size() const { return num_queued_.load(); }
  /// Takes `work` and starts the first progress thread. After close() it returns false and leaves `work` as it is.
  bool push(WorkPtr& work);
  /// Takes the front of the queue; null if it is empty. Requires: the caller already counts as running, so that a work is always
  /// in one place or the other.
  WorkPtr take();
  bool is_front(const ShmWork& work);
  /// Makes the progress thread run the queue without waiting for the caller.
  void hurry();

  /// Runs a progress thread until close(). `run_front`: runs the front of the queue and returns it; null if the queue was empty.
  void work_in_background(const std::function<WorkPtr()>& run_front);
  /// Refuses works from now on, and returns the threads, which end; absent if it was closed before.
  std::optional<std::vector<std::thread>> close();
  /// Forgets the threads in a forked child, which does not have them.
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
  int num_appointed_ = 0;  // spare threads that are to lead
};

}  // namespace cohort::comm
