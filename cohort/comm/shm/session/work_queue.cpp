#include "cohort/comm/shm/session/work_queue.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "cohort/shm/transfer/waiting.h"

namespace cohort::comm {
namespace {

using Clock = std::chrono::steady_clock;

// The time for which the progress thread leaves a work to the caller if cores are shared.
constexpr auto kGrace = std::chrono::milliseconds(1);
// The time for which the progress thread looks for work before it sleeps until it is woken.
constexpr auto kAttention = std::chrono::milliseconds(50);

}  // namespace

bool WorkQueue::push(WorkPtr& work) {
  std::unique_lock lock(mutex_);
  if (is_closed_) return false;
  queue_.push_back(std::move(work));
  num_queued_.store(queue_.size(), std::memory_order_relaxed);
  const bool wakes = is_asleep_;
  if (threads_.empty()) appoint();
  lock.unlock();
  if (wakes) wake_.notify_one();
  return true;
}

WorkQueue::WorkPtr WorkQueue::take() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) return {};
  auto work = std::move(queue_.front());
  queue_.pop_front();
  num_queued_.store(queue_.size(), std::memory_order_release);  // after the count of running works
  ++num_taken_;
  if (queue_.empty()) is_in_hurry_ = false;
  return work;
}

bool WorkQueue::is_front(const ShmWork& work) {
  const std::lock_guard lock(mutex_);
  return !queue_.empty() && queue_.front().get() == &work;
}

void WorkQueue::hurry() {
  {
    const std::lock_guard lock(mutex_);
    is_in_hurry_ = !queue_.empty();
    if (is_in_hurry_ && !has_leader_ && !is_closed_) appoint();
  }
  wake_.notify_one();
}

void WorkQueue::wait_for_work(std::unique_lock<std::mutex>& lock, bool is_quiet) {
  const auto has_work = [this] { return is_closed_ || !queue_.empty(); };
  if (cores_ == Cores::kSpare && !is_quiet) {
    lock.unlock();
    for (int i = 0; i < kPausesBeforeSleep && num_queued_.load(std::memory_order_relaxed) == 0; ++i) shm::pause();
    lock.lock();
    if (has_work()) return;
  }
  is_asleep_ = is_quiet || cores_ == Cores::kSpare;
  if (is_quiet) {
    wake_.wait(lock, has_work);
  } else {
    wake_.wait_for(lock, kGrace, has_work);
  }
  is_asleep_ = false;
}

// Waits for the grace time. Returns true if the front of the queue must not be taken yet.
bool WorkQueue::gives_grace(std::unique_lock<std::mutex>& lock) {
  if (cores_ == Cores::kSpare || is_in_hurry_) return false;
  const auto num_taken = num_taken_;
  wake_.wait_for(lock, kGrace, [this] { return is_closed_ || is_in_hurry_; });
  return num_taken_ != num_taken;
}

// Makes another progress thread the leader. Requires: the caller holds mutex_.
void WorkQueue::appoint() {
  has_leader_ = true;
  if (num_spare_ > num_appointed_) {
    ++num_appointed_;
    spare_.notify_one();
  } else {
    threads_.push_back(start_thread_());
  }
}

// Returns true if this thread still leads afterwards.
bool WorkQueue::announce_as_leader(ShmWork& work) {
  if (!work.has_future()) {
    work.announce();
    return true;
  }
  {
    const std::lock_guard lock(mutex_);
    has_leader_ = false;
    if (!queue_.empty() && !is_closed_) appoint();
  }
  work.announce();
  const std::lock_guard lock(mutex_);
  return !std::exchange(has_leader_, true);
}

// Called without the queue's lock, because this may drop the last reference to the work.
WorkQueue::Step WorkQueue::run_and_announce(const std::function<WorkPtr()>& run_front) {
  const auto work = run_front();
  if (!work) return Step::kNothingToRun;
  return announce_as_leader(*work) ? Step::kRan : Step::kLeadLost;
}

// Leads until another thread does, or the group is closed.
void WorkQueue::lead(std::unique_lock<std::mutex>& lock, const std::function<WorkPtr()>& run_front) {
  auto last_work = Clock::now();
  while (!is_closed_) {
    if (queue_.empty()) {
      wait_for_work(lock, Clock::now() - last_work > kAttention);
      continue;
    }
    last_work = Clock::now();
    if (gives_grace(lock)) continue;
    // The grace time has passed for all works that are in the queue now.
    for (auto left = queue_.size(); left > 0 && !is_closed_; --left) {
      lock.unlock();
      const auto step = run_and_announce(run_front);
      lock.lock();
      if (step == Step::kLeadLost) return;
      if (step == Step::kNothingToRun) break;
    }
  }
}

void WorkQueue::work_in_background(const std::function<WorkPtr()>& run_front) {
  pthread_setname_np(pthread_self(), "cohort-shm");
  std::unique_lock lock(mutex_);
  while (!is_closed_) {
    lead(lock, run_front);
    ++num_spare_;
    spare_.wait(lock, [this] { return is_closed_ || num_appointed_ > 0; });
    --num_spare_;
    if (num_appointed_ > 0) --num_appointed_;
  }
}

std::optional<std::vector<std::thread>> WorkQueue::close() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_closed_, true)) return std::nullopt;
    threads.swap(threads_);
  }
  wake_.notify_all();
  spare_.notify_all();
  return threads;
}

// Locks may be held by threads that do not exist in the child, so this takes none.
void WorkQueue::forget_threads() {
  for (auto& thread : threads_) thread.detach();
  threads_.clear();
}

}  // namespace cohort::comm
