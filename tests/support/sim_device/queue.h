/// Queue: the work of one simulated stream, in order, run by a thread of its own.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>

namespace cohort::sim {

/// Lives as long as the process, as does its thread. Thread-safe.
class Queue {
 public:
  explicit Queue(c10::Stream stream) : stream_(stream) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  const c10::Stream& stream() const { return stream_; }
  /// Returns the work's number, counted from 1.
  uint64_t push(std::function<void()> work);
  /// The last number given out.
  uint64_t issued();
  bool is_done(uint64_t number) const { return done_.load() >= number; }
  /// This stream is late, or never is, whatever the schedule says.
  void make_late() { own_pace_ = Pace::kLate; }
  void make_prompt() { own_pace_ = Pace::kPrompt; }
  /// Makes work run that the schedule would delay.
  void demand(uint64_t number);
  /// Blocks until work `number` and all before it have run; wait() then throws what the stream's work threw, once.
  void wait_quietly(uint64_t number);
  void wait(uint64_t number);
  void wait_for_all() { wait(issued()); }
  /// The same, but no wait of the program's: num_host_waits() does not count it.
  void wait_for_simulation();

 private:
  struct Item {
    std::function<void()> work;
    std::chrono::steady_clock::time_point since;
  };
  enum class Pace { kOfSchedule, kLate, kPrompt };
  [[noreturn]] void run();
  void throw_error();
  Item next_item(std::unique_lock<std::mutex>& lock);
  bool is_late() const;

  const c10::Stream stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  uint64_t issued_ = 0;
  uint64_t demanded_ = 0;
  std::atomic<uint64_t> done_{0};
  std::exception_ptr error_;
  bool has_thread_ = false;
  std::atomic<Pace> own_pace_{Pace::kOfSchedule};
};

/// How often the host, in any of its threads, has waited for a stream; what a stream waits for in another one does not count.
uint64_t num_host_waits();

/// A point in a stream, which is what an event records.
struct Mark {
  Queue* queue = nullptr;
  uint64_t number = 0;
};

inline Mark end_of(Queue& queue) { return {&queue, queue.issued()}; }
/// What is pushed into `queue` from now on runs after the mark.
void wait_in(Queue& queue, Mark mark);

}  // namespace cohort::sim
