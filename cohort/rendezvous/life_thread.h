/// LifeThread: the thread of a Meeting that sends heartbeats, checks those of the leader, and carries out the agent's requests in
/// order. Private to this folder.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "cohort/rendezvous/environment/settings.h"
#include "cohort/rendezvous/meeting_parts.h"
#include "cohort/rendezvous/rounds/journal.h"

namespace cohort::rendezvous {

class LifeThread {
 public:
  using Task = std::function<base::Result<void>(Journal& journal)>;

  /// Called from the thread, without holding its lock.
  struct Calls {
    /// Returns the leader; -1 if there is none. Absent if this node has left and sends no heartbeats any more.
    std::function<std::optional<NodeId>()> leader;
    /// Called in each interval while that leader is silent.
    std::function<base::Result<void>(Journal& journal, NodeId leader)> when_silent;
    /// Called after a failure of the store. Pauses, or ends the meeting.
    std::function<void(const base::Error& error)> when_failed;
    /// Whether a failed task is tried again.
    bool repeats_tasks = false;
  };

  explicit LifeThread(const Settings& settings)
      : interval_(settings.keep_alive_interval), leader_pulse_(settings.lost_after()) {}
  /// Interrupts and joins.
  ~LifeThread();

  /// Begins with a heartbeat of `id`. Throws std::system_error if the thread cannot start.
  void start(std::unique_ptr<Journal> journal, NodeId id, Calls calls);
  void ask(Task task);
  /// Waits until all tasks are done, at most `time`, or the thread ends.
  void wait_until_done(std::chrono::milliseconds time);
  /// Ends the thread after its current task and drops the other tasks. May be called from the thread.
  void end();
  /// Ends the thread as end() does, and interrupts its wait in the store.
  void interrupt();
  /// Joins the thread and closes its connection to the store. Requires that the thread ends.
  void join();

 private:
  void run(NodeId id, const Calls& calls);
  base::Result<void> beat(Journal& journal, NodeId id, const Calls& calls);

  const std::chrono::milliseconds interval_;
  /// Only used by the thread.
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
