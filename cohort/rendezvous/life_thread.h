/// LifeThread: the thread of a Meeting that gives signs of life, looks for the leader's, and carries out in order what the agent
/// asks. Private to this folder.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "cohort/rendezvous/journal.h"
#include "cohort/rendezvous/meeting_parts.h"
#include "cohort/rendezvous/settings.h"

namespace cohort::rendezvous {

class LifeThread {
 public:
  using Task = std::function<base::Result<void>(Journal& journal)>;

  /// Called from the thread, without a lock of its own.
  struct Calls {
    /// -1: nobody leads. Absent: this node has left and gives no signs of life any more.
    std::function<std::optional<NodeId>()> leader;
    /// Called in each interval while that leader is silent.
    std::function<base::Result<void>(Journal& journal, NodeId leader)> when_silent;
    /// Called when the store has failed: pauses, or ends the meeting.
    std::function<void(const base::Error& error)> when_failed;
    /// A task that has failed is tried again.
    bool repeats_tasks = false;
  };

  explicit LifeThread(const Settings& settings)
      : interval_(settings.keep_alive_interval), leader_pulse_(settings.lost_after()) {}
  /// Interrupts and joins.
  ~LifeThread();

  /// Begins with a sign of life of `id`. Throws std::system_error if there can be no thread.
  void start(std::unique_ptr<Journal> journal, NodeId id, Calls calls);
  void ask(Task task);
  /// Waits until everything asked for is done, `time` at most, or the thread ends.
  void wait_until_done(std::chrono::milliseconds time);
  /// Ends it after what it does just now; what else was asked for is dropped. May be called from the thread.
  void end();
  /// The same, and interrupts what it waits for in the store.
  void interrupt();
  /// Requires that it ends. Its connection to the store is closed afterwards.
  void join();

 private:
  void run(NodeId id, const Calls& calls);
  base::Result<void> beat(Journal& journal, NodeId id, const Calls& calls);

  const std::chrono::milliseconds interval_;
  /// Of the thread.
  LeaderPulse leader_pulse_;

  std::mutex mutex_;
  std::condition_variable changed_;
  /// Guarded by mutex_.
  std::deque<Task> tasks_;
  std::shared_ptr<Journal> journal_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace cohort::rendezvous
