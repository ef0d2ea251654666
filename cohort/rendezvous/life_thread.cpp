#include "cohort/rendezvous/life_thread.h"

#include <pthread.h>

#include "cohort/rendezvous/rounds/state.h"

namespace cohort::rendezvous {

using base::Result;

LifeThread::~LifeThread() {
  interrupt();
  join();
}

void LifeThread::start(std::unique_ptr<Journal> journal, NodeId id, Calls calls) {
  {
    const std::lock_guard lock(mutex_);
    journal_ = std::move(journal);
  }
  thread_ = std::thread([this, id, calls = std::move(calls)] { run(id, calls); });
  pthread_setname_np(thread_.native_handle(), "cohort-life");
}

void LifeThread::ask(Task task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void LifeThread::wait_until_done(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return tasks_.empty() || ends_; });
}

void LifeThread::end() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  changed_.notify_all();
}

void LifeThread::interrupt() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  if (journal_) journal_->store().interrupt();
  changed_.notify_all();
}

void LifeThread::join() {
  if (thread_.joinable()) thread_.join();
  journal_.reset();  // of a thread that could not start
}

void LifeThread::run(NodeId id, const Calls& calls) {
  auto next_beat = Clock::now();
  std::unique_lock lock(mutex_);
  std::shared_ptr<Journal> journal = journal_;
  while (!ends_) {
    Result<void> done;
    if (!tasks_.empty()) {
      const Task task = tasks_.front();
      lock.unlock();
      done = task(*journal);
      lock.lock();
      // Writing something twice does no harm.
      if (done || !calls.repeats_tasks) tasks_.pop_front();
      changed_.notify_all();
    } else if (Clock::now() >= next_beat) {
      next_beat = Clock::now() + interval_;
      lock.unlock();
      done = beat(*journal, id, calls);
      lock.lock();
    } else {
      changed_.wait_until(lock, next_beat);
    }
    if (done || ends_) continue;
    lock.unlock();
    calls.when_failed(done.error());
    lock.lock();
  }
  journal_.reset();
  lock.unlock();  // before the last copy of the journal is destroyed
}

Result<void> LifeThread::beat(Journal& journal, NodeId id, const Calls& calls) {
  const auto leader = calls.leader();
  if (!leader) return {};
  if (auto beaten = journal.beat(id); !beaten) return beaten;
  const auto now = Clock::now();
  leader_pulse_.note_own(now);
  if (*leader < 0 || *leader == id) return {};
  const auto beats = journal.beats({*leader});
  if (!beats) return beats.error();
  return leader_pulse_.is_silent(*leader, (*beats)[0], now) ? calls.when_silent(journal, *leader) : Result<void>();
}

}  // namespace cohort::rendezvous
