/// LifeThread: the thread of a Meeting that gives signs of life, and carries out in order what the agent asks. Private to this
/// folder.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "cohort/rendezvous/journal.h"

namespace cohort::rendezvous {

class LifeThread {
 public:
  using Task = std::function<base::Result<void>(Journal& journal)>;

  /// The three are called from the thread, without a lock of its own.
  struct Duties {
    std::chrono::milliseconds interval;
    /// Done once in each interval.
    Task beat;
    /// Called when a beat or a task has failed: pauses, or ends the meeting.
    std::function<void(const base::Error& error)> take_failure;
    /// A task that has failed is tried again.
    bool repeats = false;
  };

  /// Interrupts and joins.
  ~LifeThread();

  /// Begins with a beat. Throws std::system_error if there can be no thread.
  void start(std::unique_ptr<Journal> journal, Duties duties);
  void ask(Task task);
  /// Waits until everything asked for is done, `time` at most, or the thread ends.
  void wait_until_done(std::chrono::milliseconds time);
  /// Ends it after what it does just now; what else was asked for is dropped. May be called from the thread.
  void end();
  /// The same, and interrupts what it waits for in the store.
  void interrupt();
  /// Requires that it ends.
  void join();

 private:
  void run(const Duties& duties);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::shared_ptr<Journal> journal_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace cohort::rendezvous
