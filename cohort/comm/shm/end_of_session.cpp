// How a session ends: what was started is completed, then the group is left.
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/comm/backend/host_program.h"
#include "cohort/comm/shm/shm_session.h"
#include "cohort/comm/watch/throw_failure.h"

namespace cohort::comm {

const base::Failure& ShmSession::closed() {
  static const auto* const failure = new Failure{Failure::Kind::kAborted,
                                                 {"the group was destroyed, or shut down, before the operation ended"},
                                                 "wait() for every Work before destroy_process_group()"};
  return *failure;
}

void ShmSession::complete_queue() {
  while (num_queued_.load() > 0) {
    if (const auto work = run_front(Runner::kCaller)) work->announce();
  }
  // A thread that waits for its own operation may go on as long as it likes.
  while (num_running_in_background_.load() > 0) {
    std::unique_lock run(run_mutex_, std::defer_lock);
    if (!run.try_lock_for(kLookInterval)) throw_interruption();
  }
}

void ShmSession::complete_sends() {
  for (;;) {
    const auto open = exchange();
    if (!open.exchange || open.exchange->wait_for_sends(kLookInterval)) return;
    throw_interruption();
  }
}

void ShmSession::settle() {
  if (ends_without_waiting()) return;
  // A thread within an operation of its own may go on as long as it likes.
  const std::unique_lock run(run_mutex_, std::try_to_lock);
  if (!run.owns_lock() || !group_ || group_->is_settled() || group_->failure()) return;
  const Running running(num_running_);  // so that close() ends it
  int num_looks = 0;
  const std::function<std::string()> look = [&]() -> std::string {
    interrupted_ = find_interruption();
    if (interrupted_) return "interrupted by a signal";
    if (++num_looks == kLooksBeforeWarning) {
      base::log_warning(fmt::format(
          "group \"{}\" is to be destroyed, and waits until all ranks have come to this rank's last operation. Let all "
          "ranks make as many calls.",
          identity_.group));
    }
    return {};
  };
  const auto failure = group_->settle({.timeout = timeout_.load(), .find_obstacle = &look});
  if (interrupted_) std::rethrow_exception(std::exchange(interrupted_, nullptr));
  if (!failure || failure->kind == base::Failure::Kind::kAborted) return;
  base::log_warning(fmt::format("the last operations on group \"{}\" have not ended well on all ranks\n{}\n{}",
                                identity_.group, base::join(failure->causes, "\n"), failure->hint));
}

size_t ShmSession::complete() {
  if (is_forked_child()) return 0;
  const HostUnlocked unlocked;
  is_completing_ = true;
  do {
    complete_queue();
    complete_sends();
    settle();
  } while (num_queued_.load() > 0);  // callbacks may start more
  is_completing_ = false;
  return num_lost_ + num_unfinished_transfers();
}

void ShmSession::warn_of_long_wait() {
  base::log_warning(fmt::format(
      "group \"{}\" is to be destroyed, and waits for {} #{}, which was started and which nobody waited for; the other "
      "ranks have not all called it. It waits for {} at most. Call wait() on every Work before "
      "destroy_process_group().",
      identity_.group, running_->operation->name, running_->sequence,
      base::format_duration(*options_of(*running_).timeout)));
}

void ShmSession::warn_of_lost(size_t count) const {
  auto text = fmt::format(
      "group \"{}\" was destroyed with {} operation(s) that nobody waited for and that could not be completed. Call "
      "wait() on "
      "every Work before destroy_process_group().",
      identity_.group, count);
  try {
    if (first_lost_) std::rethrow_exception(first_lost_);
  } catch (const std::exception& error) {
    text += "\n" + text_of(error);
  }
  base::log_warning(text);
}

void ShmSession::complete_and_close() {
  const bool had_failed = has_failed_;
  try {
    const auto num_lost = complete();
    if (num_lost > 0 && !had_failed) warn_of_lost(num_lost);
  } catch (...) {
    close();
    throw;
  }
  close();
}

// Locks may be held by threads that the child does not have.
void ShmSession::forget() {
  for (auto& thread : threads_) thread.detach();
  threads_.clear();
  [[maybe_unused]] auto* const left_as_it_is = group_.release();
}

void ShmSession::close() {
  if (getpid() != owner_) return forget();
  const HostUnlocked unlocked;
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(queue_mutex_);
    if (is_closed_) return;
    is_closed_ = true;
    threads.swap(threads_);
  }
  wake_.notify_all();
  spare_.notify_all();
  remove_background_threads(*this);
  if (num_pending() > 0) {
    const std::shared_lock lock(lifetime_);
    group_->abort();
  }
  fail_queue(closed());
  // A future's callback may drop the last reference to the group in a progress thread itself.
  for (auto& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
  std::vector<Kept> kept;
  const std::lock_guard run(run_mutex_);
  const std::lock_guard lifetime(lifetime_);
  group_.reset();
  const std::lock_guard lock(kept_mutex_);
  kept.swap(kept_);
}

}  // namespace cohort::comm
