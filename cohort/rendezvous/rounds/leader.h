/// Leader: collects what nodes report, decides when rounds begin and end, and announces it. Runs on one node at a time, in its
/// own thread. Two leaders at once, after a node was wrongly considered dead, do no harm: of two announcements the first counts.
/// Private to this folder.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "cohort/rendezvous/rounds/decision.h"
#include "cohort/rendezvous/rounds/journal.h"

namespace cohort::rendezvous {

class Leader {
 public:
  /// Called once, from the leader's thread, when it cannot go on. Without a leader no decision would be made any more.
  using WhenLost = std::function<void(const base::Error& error, const Journal& journal)>;

  /// Starts the thread. It ends if news says that another node leads or that the job has ended, or if the store is lost.
  Leader(std::unique_ptr<Journal> journal, Settings settings, NodeId id, bool store_may_return, WhenLost when_lost);
  /// Interrupts a wait of the thread.
  ~Leader();

 private:
  base::Result<void> lead();
  void run();
  base::Result<void> read_notices();
  base::Result<void> read_news();
  base::Result<void> read_beats();
  base::Result<void> act();
  base::Result<void> publish(const std::string& why);
  void say(const Decision& decision);
  std::chrono::milliseconds time_until_next(const Decision& decision) const;

  const std::unique_ptr<Journal> journal_;
  const Settings settings_;
  const NodeId id_;
  const bool store_may_return_;
  const WhenLost when_lost_;

  State state_;
  int64_t next_notice_ = 0;
  int64_t next_news_ = 0;
  std::optional<Clock::time_point> gap_since_;
  bool leads_ = true;
  struct Pulse {
    std::string beat;
    Clock::time_point changed_at;
  };
  std::map<NodeId, Pulse> pulses_;
  Clock::time_point beats_read_at_;
  std::string said_;
  Decision decision_;

  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

}  // namespace cohort::rendezvous
