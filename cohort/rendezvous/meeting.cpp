#include "cohort/rendezvous/meeting.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "cohort/base/log/log.h"
#include "cohort/base/system/host.h"
#include "cohort/base/text/text.h"

namespace cohort::rendezvous {
namespace {

using base::Error;
using base::Result;
using std::chrono::milliseconds;
using Reason = RoundOver::Reason;

constexpr milliseconds kLeavingTime{800};
constexpr milliseconds kPause{200};
/// The time for which a node whose workers have ended waits for a store that does not answer: as long as torchrun's agents wait
/// at their exit barrier.
constexpr milliseconds kExitBarrierTime = std::chrono::seconds(300);
constexpr milliseconds kQuietEnd = std::chrono::seconds(1);

}  // namespace

Meeting::Meeting(const Settings& settings, std::unique_ptr<MeetingPlace> place)
    : settings_(settings),
      place_(std::move(place)),
      wait_(settings.join_timeout, kRendezvousSilence, Clock::now()),
      absence_(kRendezvousSilence + settings.read_timeout),
      life_(settings) {
  news_thread_ = std::thread([this] { read_news(); });
  pthread_setname_np(news_thread_.native_handle(), "cohort-news");
}

Meeting::~Meeting() {
  leave("its agent has ended");
  stops_ = true;
  interrupt();
  news_thread_.join();
  life_.join();
  lead_.reset();
  journal_.reset();
  wait_for_readers();
}

void Meeting::interrupt() {
  const std::lock_guard lock(mutex_);
  if (journal_) journal_->store().interrupt();
  life_.interrupt();
  changed_.notify_all();
}

// The store ends with this process, so this waits until the others have read how the job ended. A living node does so at once.
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
  if (!round_.is_running()) return;
  place_->allow_silence(kExitBarrierTime);
  life_.ask([id = id_, round = round_.number()](Journal& journal) -> Result<void> {
    const auto told = journal.tell({Notice::Kind::kDone, id, round, "", {}});
    return told ? Result<void>() : told.error();
  });
}

void Meeting::report_failure(const std::string& why, bool may_restart) {
  const std::lock_guard lock(mutex_);
  if (!round_.is_running()) return;
  const RoundRecord& round = *round_.record();
  const bool job_ends = !may_restart || round.restart_count >= round.max_restarts;
  const OverRecord over{round.number, Reason::kWorkerFailed, why, id_, job_ends};
  life_.ask([this, over](Journal& journal) { return end_round(journal, over); });
}

void Meeting::join_next() {
  const std::lock_guard lock(mutex_);
  if (has_ended_ || has_left_ || !round_.record() || round_.is_running()) return;
  wait_.begin(Clock::now());
  life_.ask([id = id_, round = round_.number() + 1](Journal& journal) -> Result<void> {
    const auto told = journal.tell({Notice::Kind::kReady, id, round, "", {}});
    return told ? Result<void>() : told.error();
  });
}

void Meeting::leave(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (has_ended_ || has_left_ || id_ < 0) return;
    has_left_ = true;
    say_good_bye(why);
  }
  life_.wait_until_done(kLeavingTime);
}

// Requires mutex_.
void Meeting::say_good_bye(const std::string& why) {
  const bool takes_store = place_->is_hosted_here();
  const bool is_static = settings_.backend == Settings::Backend::kStatic;
  const bool runs = round_.is_running();
  const bool leads = leader_ == id_;
  auto text = fmt::format("{} has left: {}", describe().node.host, why);
  if (takes_store) text += fmt::format("; it hosted the rendezvous at {}", place_->name());
  OverRecord over{round_.number(), Reason::kNodeLeft, std::move(text), id_, takes_store || is_static};
  life_.ask([this, over, runs, takes_store, leads](Journal& journal) -> Result<void> {
    // Before the leader hears of it and reports the same with fewer details.
    if (runs || takes_store) {
      if (auto ended = end_round(journal, over); !ended || takes_store) return ended;
    }
    const auto told = journal.tell({Notice::Kind::kGone, over.id, over.round, over.why, {}});
    if (!told) return told.error();
    return leads ? hand_over_lead(journal) : Result<void>();
  });
}

void Meeting::fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (has_ended_ || stops_) return;
  set_ended();
  if (!has_left_) events_.push(std::move(error));
}

Error Meeting::refuse(Error error) {
  fail(error);
  return error;
}

bool Meeting::has_ended() const {
  const std::lock_guard lock(mutex_);
  return has_ended_;
}

// Requires mutex_.
void Meeting::set_ended() {
  has_ended_ = true;
  life_.end();
}

bool Meeting::wait_for_return(const Error& error) {
  std::unique_lock lock(mutex_);
  const auto now = Clock::now();
  if (!place_->may_return() || stops_ || wait_.is_late(now)) return false;
  if (absence_.note(now)) {
    const auto* const meanwhile = round_.is_running() ? "the workers go on meanwhile, for" : "trying again, for";
    base::log_warning(fmt::format("{}; {} {} at most", place_->lost(error).message(), meanwhile,
                                  base::format_duration(settings_.join_timeout)));
  }
  if (absence_.age(now) > settings_.join_timeout) return false;
  changed_.wait_for(lock, kPause, [this] { return stops_.load(); });
  return true;
}

std::optional<NodeId> Meeting::leader_to_watch() const {
  const std::lock_guard lock(mutex_);
  return has_left_ ? std::nullopt : std::optional(leader_);
}

Result<void> Meeting::take_lead(Journal& journal, NodeId silent) {
  int64_t place = 0;
  {
    const std::lock_guard lock(mutex_);
    if (leader_ != silent) return {};
    place = next_news_;
  }
  base::log_info(fmt::format("rendezvous \"{}\": the leading node is silent; this one leads now", settings_.run_id));
  const auto announced = journal.announce(place, LeadRecord{id_, silent});
  return announced ? Result<void>() : announced.error();
}

// The first end that is written counts: if the round is already over for another reason, that reason stays.
Result<void> Meeting::end_round(Journal& journal, const OverRecord& over) {
  int64_t place = 0;
  {
    const std::lock_guard lock(mutex_);
    place = next_news_;
    // The round may have ended since this was requested.
    const bool runs = round_.is_running(over.round);
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
