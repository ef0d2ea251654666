#include "cohort/rendezvous/life_thread.h"

#include <pthread.h>

#include "cohort/rendezvous/state.h"

namespace cohort::rendezvous {

using base::Result;

LifeThread::~LifeThread() {
  interrupt();
  join();
}

void LifeThread::start(std::unique_ptr<Journal> journal, Duties duties) {
  {
    const std::lock_guard lock(mutex_);
    journal_ = std::move(journal);
  }
  thread_ = std::thread([this, duties = std::move(duties)] { run(duties); });
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
}

void LifeThread::run(const Duties& duties) {
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
      // Saying something twice does no harm.
      if (done || !duties.repeats) tasks_.pop_front();
      changed_.notify_all();
    } else if (Clock::now() >= next_beat) {
      next_beat = Clock::now() + duties.interval;
      lock.unlock();
      done = duties.beat(*journal);
      lock.lock();
    } else {
      changed_.wait_until(lock, next_beat);
    }
    if (done || ends_) continue;
    lock.unlock();
    duties.take_failure(done.error());
    lock.lock();
  }
  journal_.reset();
  lock.unlock();
}

}  // namespace cohort::rendezvous
