/// Meeting: this node's part in a rendezvous of several nodes. Private to this folder.
///
/// Two threads. One reads news, and waits in the store for more; the other gives signs of life, carries out what the agent asks,
/// and takes over when the leader is silent. A third leads (leader.h) where this node is the one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "cohort/rendezvous/event_queue.h"
#include "cohort/rendezvous/journal.h"
#include "cohort/rendezvous/leader.h"
#include "cohort/rendezvous/meeting_place.h"
#include "cohort/rendezvous/worker_store.h"

namespace cohort::rendezvous {

class Meeting final : public Rendezvous {
 public:
  Meeting(const Settings& settings, std::unique_ptr<MeetingPlace> place);
  ~Meeting() override;

  int fd() const override { return events_.fd(); }
  std::optional<Event> next_event() override { return events_.pop(); }
  void report_success() override;
  void report_failure(const std::string& why, bool may_restart) override;
  void join_next() override;
  void leave(const std::string& why) override;

 private:
  using Task = std::function<base::Result<void>(Journal&)>;
  using Milliseconds = std::chrono::milliseconds;

  // Of the thread that reads news.
  void read_news();
  void come_and_follow();
  void follow_news();
  base::Result<void> come();
  base::Result<void> enter();
  base::Result<void> check_settings();
  base::Result<void> skip_history();
  base::Result<void> follow();
  Milliseconds time_to_wait() const;
  void note_room(const RoundRecord& round);
  base::Result<void> take(const News& news);
  base::Result<void> take_round(const RoundRecord& round);
  base::Result<std::optional<WorkersPlace>> agree_on_workers_place(const RoundRecord& round);
  base::Result<bool> take_leads();
  void take_end(const OverRecord& over);
  base::Result<void> look_at_time();
  std::string hint_for_waiting() const;
  Member describe() const;

  // Of the thread that gives signs of life.
  void live();
  base::Result<void> watch_leader(Journal& journal);
  base::Result<void> hand_over_lead(Journal& journal);
  base::Result<void> end_round(Journal& journal, const OverRecord& over);

  void ask(Task task);
  void fail(base::Error error);
  /// Whether an operation on the store is to be tried again, after a pause.
  bool wait_for_return(const base::Error& error);
  void interrupt();
  void wait_for_readers();

  const Settings settings_;
  const std::unique_ptr<MeetingPlace> place_;
  EventQueue events_;
  std::atomic<bool> stops_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  /// Guarded by mutex_.
  std::deque<Task> tasks_;
  NodeId id_ = -1;
  NodeId leader_ = -1;
  int64_t next_news_ = 0;
  /// The last round that this node was in; `is_over_` tells whether it still runs.
  std::optional<RoundRecord> round_;
  int rank_ = -1;
  bool is_over_ = true;
  /// The agent knows of `round_`.
  bool is_told_ = false;
  bool has_ended_ = false;
  bool has_left_ = false;
  /// When this node gives up waiting; nothing while it takes part or is a spare.
  std::optional<Clock::time_point> deadline_;
  Clock::time_point waits_since_;
  std::shared_ptr<Journal> life_journal_;

  /// Round::job; of the thread that reads news.
  std::string job_;
  bool is_explained_ = false;
  /// The store answers, but this node may not take part.
  bool is_refused_ = false;
  /// Of a store that may return: when an attempt to reach it last failed, and when the first one did.
  Clock::time_point away_seen_at_;
  Clock::time_point away_since_;

  /// Of the thread that reads news; set under mutex_.
  std::shared_ptr<Journal> journal_;
  std::unique_ptr<Leader> lead_;
  WorkerStore workers_;

  /// Of the thread that gives signs of life.
  struct LeaderPulse {
    NodeId id = -1;
    std::string beat;
    Clock::time_point changed_at;
    Clock::time_point seen_at;
  };
  LeaderPulse leader_pulse_;

  std::thread life_thread_;
  std::thread news_thread_;
};

}  // namespace cohort::rendezvous
