/// Meeting: this node's part in a rendezvous of several nodes. Private to this folder.
///
/// It has two threads. One reads news and waits in the store for more. The other (life_thread.h) sends heartbeats, carries out
/// the agent's requests, and takes over if the leader is silent. If this node leads, a third thread runs the leader (leader.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "cohort/rendezvous/life_thread.h"
#include "cohort/rendezvous/meeting_parts.h"
#include "cohort/rendezvous/meeting_place.h"
#include "cohort/rendezvous/rendezvous.h"
#include "cohort/rendezvous/rounds/event_queue.h"
#include "cohort/rendezvous/rounds/journal.h"
#include "cohort/rendezvous/rounds/leader.h"
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
  using Milliseconds = std::chrono::milliseconds;

  // Functions of the thread that reads news.
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

  // Functions of the thread that sends heartbeats.
  std::optional<NodeId> leader_to_watch() const;
  base::Result<void> take_lead(Journal& journal, NodeId silent);
  base::Result<void> hand_over_lead(Journal& journal);
  base::Result<void> end_round(Journal& journal, const OverRecord& over);

  void say_good_bye(const std::string& why);
  void fail(base::Error error);
  /// Fails with an error that stays even if the store returns.
  base::Error refuse(base::Error error);
  bool has_ended() const;
  void set_ended();
  /// Returns whether to try an operation on the store again. Pauses before that.
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
  NodeId id_ = -1;
  NodeId leader_ = -1;
  int64_t next_news_ = 0;
  OwnRound round_;
  RoundWait wait_;
  StoreAbsence absence_;
  bool has_ended_ = false;
  bool has_left_ = false;

  /// Used by the thread that reads news: Round::job, the leader if it runs here, and the store of the round's workers.
  std::string job_;
  std::unique_ptr<Leader> lead_;
  WorkerStore workers_;
  /// Used by the same thread; set under mutex_.
  std::shared_ptr<Journal> journal_;

  LifeThread life_;
  std::thread news_thread_;
};

}  // namespace cohort::rendezvous
