#include "cohort/rendezvous/meeting.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "cohort/base/host.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"

namespace cohort::rendezvous {
namespace {

using base::Error;
using base::Result;
using std::chrono::milliseconds;
using Reason = RoundOver::Reason;

constexpr milliseconds kLeavingTime{800};
constexpr milliseconds kPause{200};
/// How long a node whose workers have ended waits for a store that does not answer: as long as torchrun's agents wait at their
/// exit barrier.
constexpr milliseconds kExitBarrierTime = std::chrono::seconds(300);
constexpr milliseconds kQuietEnd = std::chrono::seconds(1);

}  // namespace

Meeting::Meeting(const Settings& settings, std::unique_ptr<MeetingPlace> place)
    : settings_(settings), place_(std::move(place)), waits_since_(Clock::now()) {
  deadline_ = waits_since_ + settings_.join_timeout;
  news_thread_ = std::thread([this] { read_news(); });
  pthread_setname_np(news_thread_.native_handle(), "cohort-news");
}

Meeting::~Meeting() {
  leave("its agent has ended");
  stops_ = true;
  interrupt();
  news_thread_.join();
  if (life_thread_.joinable()) life_thread_.join();
  lead_.reset();
  journal_.reset();
  life_journal_.reset();
  wait_for_readers();
}

void Meeting::interrupt() {
  const std::lock_guard lock(mutex_);
  if (journal_) journal_->store().interrupt();
  if (life_journal_) life_journal_->store().interrupt();
  changed_.notify_all();
}

// The store ends with us, so let the others read first how the job ended. A living node does so at once.
void Meeting::wait_for_readers() {
  if (!place_->is_hosted_here()) return;
  const auto begin = Clock::now();
  const auto time = std::min(settings_.close_timeout, settings_.lost_after());
  bool was_said = false;
  while (place_->num_clients() > 0 && Clock::now() < begin + time) {
    if (!was_said && Clock::now() - begin > kQuietEnd) {
      base::log_warning(
          fmt::format("the job is over, but others are still connected to the rendezvous at {}, which ends with "
                      "this process; waiting for them, for {} at most",
                      place_->name(), base::format_duration(time)));
      was_said = true;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

void Meeting::report_success() {
  const std::lock_guard lock(mutex_);
  if (!round_ || is_over_) return;
  place_->allow_silence(kExitBarrierTime);
  ask([id = id_, round = round_->number](Journal& journal) -> Result<void> {
    const auto told = journal.tell({Notice::Kind::kDone, id, round, "", {}});
    return told ? Result<void>() : told.error();
  });
}

void Meeting::report_failure(const std::string& why, bool may_restart) {
  const std::lock_guard lock(mutex_);
  if (!round_ || is_over_) return;
  const bool job_ends = !may_restart || round_->restart_count >= round_->max_restarts;
  const OverRecord over{round_->number, Reason::kWorkerFailed, why, id_, job_ends};
  ask([this, over](Journal& journal) { return end_round(journal, over); });
}

void Meeting::join_next() {
  const std::lock_guard lock(mutex_);
  if (has_ended_ || has_left_ || !round_ || !is_over_) return;
  waits_since_ = Clock::now();
  deadline_ = waits_since_ + settings_.join_timeout;
  ask([id = id_, round = round_->number + 1](Journal& journal) -> Result<void> {
    const auto told = journal.tell({Notice::Kind::kReady, id, round, "", {}});
    return told ? Result<void>() : told.error();
  });
}

void Meeting::leave(const std::string& why) {
  std::unique_lock lock(mutex_);
  if (has_ended_ || has_left_ || id_ < 0) return;
  has_left_ = true;
  const bool takes_store = place_->is_hosted_here();
  const bool is_static = settings_.backend == Settings::Backend::kStatic;
  const bool runs = round_ && !is_over_;
  const bool leads = leader_ == id_;
  auto text = fmt::format("{} has left: {}", describe().node.host, why);
  if (takes_store) text += fmt::format("; it hosted the rendezvous at {}", place_->name());
  OverRecord over{round_ ? round_->number : -1, Reason::kNodeLeft, std::move(text), id_, takes_store || is_static};
  ask([this, over, runs, takes_store, leads](Journal& journal) -> Result<void> {
    // Before the leader hears of it and says the same with fewer words.
    if (runs || takes_store) {
      if (auto ended = end_round(journal, over); !ended || takes_store) return ended;
    }
    const auto told = journal.tell({Notice::Kind::kGone, over.id, over.round, over.why, {}});
    if (!told) return told.error();
    return leads ? hand_over_lead(journal) : Result<void>();
  });
  changed_.wait_for(lock, kLeavingTime, [this] { return tasks_.empty() || has_ended_; });
}

// Requires mutex_.
void Meeting::ask(Task task) {
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void Meeting::fail(Error error) {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  if (has_ended_ || stops_) return;
  has_ended_ = true;
  if (!has_left_) events_.push(std::move(error));
}

bool Meeting::wait_for_return(const Error& error) {
  std::unique_lock lock(mutex_);
  const auto now = Clock::now();
  if (!place_->may_return() || stops_ || (deadline_ && now >= *deadline_)) return false;
  if (now - away_seen_at_ > kRendezvousSilence + settings_.read_timeout) {
    away_since_ = now;
    const auto* const meanwhile = round_ && !is_over_ ? "the workers go on meanwhile, for" : "trying again, for";
    base::log_warning(fmt::format("{}; {} {} at most", place_->lost(error).message(), meanwhile,
                                  base::format_duration(settings_.join_timeout)));
  }
  away_seen_at_ = now;
  if (now - away_since_ > settings_.join_timeout) return false;
  changed_.wait_for(lock, kPause, [this] { return stops_.load(); });
  return true;
}

void Meeting::live() {
  auto next_beat = Clock::now();
  auto journal = life_journal_;
  std::unique_lock lock(mutex_);
  while (!stops_ && !has_ended_) {
    Result<void> done;
    if (!tasks_.empty()) {
      const auto task = tasks_.front();
      lock.unlock();
      done = task(*journal);
      lock.lock();
      // Saying something twice does no harm.
      if (done || !place_->may_return()) tasks_.pop_front();
      changed_.notify_all();
    } else if (Clock::now() >= next_beat) {
      next_beat = Clock::now() + settings_.keep_alive_interval;
      lock.unlock();
      done = watch_leader(*journal);
      lock.lock();
    } else {
      changed_.wait_until(lock, next_beat);
    }
    if (done || stops_) continue;
    lock.unlock();
    if (!wait_for_return(done.error())) fail(place_->lost(done.error()));
    lock.lock();
  }
  life_journal_.reset();
}

Result<void> Meeting::watch_leader(Journal& journal) {
  NodeId leader = -1;
  int64_t place = 0;
  {
    const std::lock_guard lock(mutex_);
    leader = leader_;
    place = next_news_;
    if (has_left_) return {};
  }
  if (auto beaten = journal.beat(id_); !beaten) return beaten;
  const auto now = Clock::now();
  const bool were_away = now - leader_pulse_.seen_at > settings_.lost_after() / 2;
  leader_pulse_.seen_at = now;
  if (leader < 0 || leader == id_) return {};
  const auto beats = journal.beats({leader});
  if (!beats) return beats.error();
  if (leader_pulse_.id != leader || leader_pulse_.beat != (*beats)[0] || were_away) {
    leader_pulse_.id = leader;
    leader_pulse_.beat = (*beats)[0];
    leader_pulse_.changed_at = now;
  }
  if (now - leader_pulse_.changed_at < settings_.lost_after()) return {};
  base::log_info(fmt::format("rendezvous \"{}\": the leading node is silent; this one leads now", settings_.run_id));
  const auto announced = journal.announce(place, LeadRecord{id_, leader});
  return announced ? Result<void>() : announced.error();
}

// First come, first served: where the round is over already, for another reason, that stays.
Result<void> Meeting::end_round(Journal& journal, const OverRecord& over) {
  int64_t place = 0;
  {
    const std::lock_guard lock(mutex_);
    place = next_news_;
    // It may have ended since this was asked for.
    const bool runs = round_ && !is_over_ && round_->number == over.round;
    const bool takes_store = over.reason == Reason::kNodeLeft && over.job_ends;
    if (has_ended_ || (!runs && !takes_store)) return {};
  }
  for (;; ++place) {
    const auto announced = journal.announce(place, over);
    if (!announced) return announced.error();
    if (*announced) break;
    const auto news = journal.news_at(place);
    if (!news) return news.error();
    const auto* other = std::get_if<OverRecord>(&*news);
    if (other && (other->round >= over.round || other->job_ends) &&
        !(over.job_ends && over.reason == Reason::kNodeLeft))
      return {};
  }
  const auto told = journal.tell({Notice::Kind::kNews, over.id, over.round, "", {}});
  return told ? Result<void>() : told.error();
}

Result<void> Meeting::hand_over_lead(Journal& journal) {
  int64_t place = 0;
  {
    const std::lock_guard lock(mutex_);
    place = next_news_;
  }
  while (true) {
    const auto announced = journal.announce(place++, LeadRecord{});
    if (!announced) return announced.error();
    if (*announced) return {};
  }
}

Member Meeting::describe() const {
  Member member;
  member.node.host = base::host_name();
  member.node.address = !settings_.local_address.empty() ? settings_.local_address : place_->own_address();
  if (member.node.address.empty()) member.node.address = base::host_name();
  member.node.pid = getpid();
  member.node.local_world_size = settings_.local_world_size;
  member.node.role = settings_.role;
  member.node.public_key = settings_.public_key;
  member.sort_name = !settings_.local_address.empty() ? settings_.local_address : base::host_name();
  member.store_address = place_->store_address();
  if (settings_.backend == Settings::Backend::kStatic) member.fixed_rank = settings_.node_rank;
  member.max_restarts = settings_.max_restarts;
  return member;
}

}  // namespace cohort::rendezvous
