/// The state of a Meeting (its round, its waiting, the store), one class for each rule. No locks, no clock. Private to this
/// folder.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "cohort/base/system/deadline.h"
#include "cohort/rendezvous/rounds/records.h"
#include "cohort/rendezvous/rounds/state.h"

namespace cohort::rendezvous {

/// The last round of this node. It runs from begin() to end(); the agent hears of its end only if it knows of the round.
class OwnRound {
 public:
  void begin(RoundRecord record, int rank) {
    record_ = std::move(record);
    rank_ = rank;
    is_over_ = is_told_ = false;
  }
  void note_told() { is_told_ = true; }
  /// Returns whether the agent knows of the round.
  bool end() {
    is_over_ = true;
    return is_told_;
  }

  /// Null before the first round.
  const RoundRecord* record() const { return record_ ? &*record_ : nullptr; }
  int rank() const { return rank_; }
  /// -1 before the first round.
  int number() const { return record_ ? record_->number : -1; }
  bool is_running() const { return record_ && !is_over_; }
  bool is_running(int number) const { return is_running() && record_->number == number; }

 private:
  std::optional<RoundRecord> record_;
  int rank_ = -1;
  bool is_over_ = true;
  bool is_told_ = false;
};

/// This node's wait for a round. It gives up at a deadline, and after a while says once what it waits for. A node in a round, or
/// a spare, has no deadline.
class RoundWait {
 public:
  enum class Due { kNothing, kExplanation, kEnd };

  RoundWait(std::chrono::milliseconds limit, std::chrono::milliseconds silence, Clock::time_point now)
      : limit_(limit), silence_(silence) {
    begin(now);
  }

  void begin(Clock::time_point now) {
    since_ = now;
    deadline_ = base::deadline_after(limit_, now);
    is_explained_ = false;
  }
  /// Restarts the wait after another round has ended: a spare has a deadline again, and the explanation is due again.
  void go_on(Clock::time_point now) {
    if (!deadline_) deadline_ = base::deadline_after(limit_, now);
    is_explained_ = false;
  }
  void end() { deadline_.reset(); }

  bool is_late(Clock::time_point now) const { return deadline_ && now >= *deadline_; }
  /// The time left; zero or negative once it is over. Requires a deadline.
  std::chrono::milliseconds left(Clock::time_point now) const { return base::time_left(*deadline_, now); }
  /// Returns what is due; an explanation is due only once.
  Due look(Clock::time_point now) {
    if (is_late(now)) return Due::kEnd;
    if (!deadline_ || is_explained_ || now - since_ < silence_) return Due::kNothing;
    is_explained_ = true;
    return Due::kExplanation;
  }
  /// The time until look() must be called again: from 1 ms to `most`.
  std::chrono::milliseconds until_due(Clock::time_point now, std::chrono::milliseconds most) const {
    if (deadline_) most = std::min(most, left(now));
    if (deadline_ && !is_explained_) most = std::min(most, base::time_left(since_ + silence_, now));
    return std::max(most, std::chrono::milliseconds(1));
  }

 private:
  const std::chrono::milliseconds limit_;
  const std::chrono::milliseconds silence_;
  Clock::time_point since_;
  std::optional<Clock::time_point> deadline_;
  bool is_explained_ = false;
};

/// The absence of a store that may return: failures less than `quiet` apart belong to one absence.
class StoreAbsence {
 public:
  explicit StoreAbsence(std::chrono::milliseconds quiet) : quiet_(quiet) {}

  /// Records a failure. Returns whether an absence begins with it.
  bool note(Clock::time_point now) {
    const bool begins = !seen_at_ || now - *seen_at_ > quiet_;
    if (begins) since_ = now;
    seen_at_ = now;
    return begins;
  }
  /// The time since its first failure.
  Clock::duration age(Clock::time_point now) const { return now - since_; }

 private:
  const std::chrono::milliseconds quiet_;
  std::optional<Clock::time_point> seen_at_;
  Clock::time_point since_;
};

/// Tells whether the leader is alive: it is, as long as its counter changes. Only this node's clock counts, and a pause of this
/// process, as after SIGSTOP, says nothing about the leader.
class LeaderPulse {
 public:
  explicit LeaderPulse(std::chrono::milliseconds lost_after) : lost_after_(lost_after) {}

  /// Must be called at each heartbeat of this node, before is_silent().
  void note_own(Clock::time_point now) {
    were_away_ = now - seen_at_ > lost_after_ / 2;
    seen_at_ = now;
  }
  bool is_silent(NodeId leader, const std::string& beat, Clock::time_point now) {
    if (leader_ != leader || beat_ != beat || were_away_) {
      leader_ = leader;
      beat_ = beat;
      changed_at_ = now;
    }
    return now - changed_at_ >= lost_after_;
  }

 private:
  const std::chrono::milliseconds lost_after_;
  NodeId leader_ = -1;
  std::string beat_;
  Clock::time_point changed_at_;
  Clock::time_point seen_at_;
  bool were_away_ = false;
};

}  // namespace cohort::rendezvous
