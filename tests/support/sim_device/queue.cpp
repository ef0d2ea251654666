#include "tests/support/sim_device/queue.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "tests/support/sim_device/schedule.h"

namespace cohort::sim {

namespace {

std::atomic<uint64_t> host_waits{0};

}  // namespace

uint64_t num_host_waits() { return host_waits.load(); }

uint64_t Queue::push(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(has_thread_, true)) std::thread([this] { run(); }).detach();
  items_.push_back({std::move(work), std::chrono::steady_clock::now()});
  changed_.notify_all();
  return ++issued_;
}

uint64_t Queue::issued() {
  const std::lock_guard lock(mutex_);
  return issued_;
}

void Queue::demand(uint64_t number) {
  const std::lock_guard lock(mutex_);
  demanded_ = std::max(demanded_, number);
  changed_.notify_all();
}

void Queue::wait_quietly(uint64_t number) {
  demand(number);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_done(number); });
}

void Queue::wait(uint64_t number) {
  ++host_waits;
  wait_quietly(number);
  throw_error();
}

void Queue::wait_for_simulation() {
  wait_quietly(issued());
  throw_error();
}

void Queue::throw_error() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool Queue::is_late() const {
  const auto own = own_pace_.load();
  if (own != Pace::kOfSchedule) return own == Pace::kLate;
  const auto schedule = current_schedule();
  if (schedule.every_other_is_late) return (stream_.id() + stream_.device_index()) % 2 == 1;
  return stream_.id() == 0 ? schedule.default_is_late : schedule.sides_are_late;
}

Queue::Item Queue::next_item(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return !items_.empty(); });
  if (is_late()) {
    const auto due = items_.front().since + current_schedule().patience;
    changed_.wait_until(lock, due, [&] { return done_.load() < demanded_; });
  }
  auto item = std::move(items_.front());
  items_.pop_front();
  return item;
}

void Queue::run() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::NoGradGuard no_grad;
  at::init_num_threads();
  std::unique_lock lock(mutex_);
  for (;;) {
    auto item = next_item(lock);
    lock.unlock();
    std::exception_ptr error;
    try {
      item.work();
    } catch (...) {
      error = std::current_exception();
    }
    item.work = nullptr;  // tensors in it may be the last of their memory, which pushes into a queue
    lock.lock();
    if (error && !error_) error_ = error;
    ++done_;
    changed_.notify_all();
  }
}

void wait_in(Queue& queue, Mark mark) {
  if (mark.queue == &queue || mark.queue->is_done(mark.number)) return;
  queue.push([mark] { mark.queue->wait_quietly(mark.number); });
}

}  // namespace cohort::sim
