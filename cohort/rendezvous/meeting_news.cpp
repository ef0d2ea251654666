// The thread of a Meeting that reads news.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "cohort/base/log/log.h"
#include "cohort/base/net/interfaces.h"
#include "cohort/base/process/process.h"
#include "cohort/base/system/host.h"
#include "cohort/base/text/text.h"
#include "cohort/rendezvous/meeting.h"
#include "cohort/rendezvous/rounds/agreement.h"

namespace cohort::rendezvous {
namespace {

using base::Error;
using base::Result;
using std::chrono::milliseconds;
using Reason = RoundOver::Reason;

// Listens no wider than needed: workers of one host meet on its loopback interface. All nodes are started alike, so `bind` may be
// an address of the rendezvous' host, which may be another host.
std::string where_to_listen(const std::string& bind, const std::string& address) {
  if (base::is_loopback(address)) return address;
  const auto own = base::own_addresses();
  return bind.empty() || std::find(own.begin(), own.end(), bind) != own.end() ? bind : address;
}

}  // namespace

void Meeting::read_news() {
  try {
    come_and_follow();
  } catch (const std::system_error& error) {  // from std::thread
    fail(base::no_process("cannot start a thread for the rendezvous", error.code().value()));
  }
  lead_.reset();
  const std::lock_guard lock(mutex_);
  journal_.reset();
}

void Meeting::come_and_follow() {
  auto store = place_->connect(settings_.join_timeout, stops_);
  if (!store) return fail(store.error());
  {
    const std::lock_guard lock(mutex_);
    journal_ = std::make_shared<Journal>(std::move(*store), settings_.run_id);
  }
  for (auto joined = come(); !joined; joined = come()) {
    if (has_ended()) return;
    if (journal_->has_misread() || !wait_for_return(joined.error())) return fail(joined.error());
  }
  follow_news();
}

void Meeting::follow_news() {
  while (!stops_ && !has_ended()) {
    const auto done = follow();
    if (done || stops_) continue;
    if (journal_->has_misread()) return fail(done.error());
    if (!wait_for_return(done.error())) return fail(place_->lost(done.error()));
  }
}

// Called again if the store comes back.
Result<void> Meeting::come() {
  if (id_ < 0) {
    if (auto entered = enter(); !entered) return entered;
  }
  if (leader_ >= 0) return {};
  // If another node was faster, its news counts.
  const auto announced = journal_->announce(next_news_, LeadRecord{id_, -1});
  return announced ? Result<void>() : announced.error();
}

Result<void> Meeting::enter() {
  if (auto checked = check_settings(); !checked) return checked;
  if (auto skipped = skip_history(); !skipped) return skipped;
  auto journal = journal_->clone();
  if (!journal) return journal.error();
  const auto id = journal_->tell({Notice::Kind::kCome, -1, 0, "", describe()});
  if (!id) return id.error();
  {
    const std::lock_guard lock(mutex_);
    id_ = *id;
  }
  life_.start(std::move(*journal), *id,
              {.leader = [this] { return leader_to_watch(); },
               .when_silent = [this](Journal& own, NodeId leader) { return take_lead(own, leader); },
               .when_failed =
                   [this](const Error& error) {
                     if (!wait_for_return(error)) fail(place_->lost(error));
                   },
               .repeats_tasks = place_->may_return()});
  return {};
}

Result<void> Meeting::check_settings() {
  if (auto kept = keep_torchrun_out(journal_->store(), settings_, place_->name()); !kept) return kept;
  const auto own = settings_text(settings_, base::host_name());
  const auto first = journal_->set_once("settings", own);
  if (!first) return first.error();
  const auto warnings = compare_settings(own, *first);
  if (!warnings) return refuse(warnings.error());
  for (const auto& warning : *warnings)
    base::log_warning(fmt::format("rendezvous \"{}\": {}", settings_.run_id, warning));
  auto job = journal_->set_once("job", random_id());
  if (!job) return job.error();
  job_ = std::move(*job);
  if (settings_.backend != Settings::Backend::kStatic) return {};
  const auto holder = fmt::format("{} (pid {})", base::host_name(), getpid());
  const auto there = journal_->set_once(fmt::format("rank/{}", settings_.node_rank), holder);
  if (!there) return there.error();
  if (*there == holder) return {};
  return Error(fmt::format("--node-rank={} is taken by {}", settings_.node_rank, *there))
      .with_hint("give every node its own --node-rank; for a job that nodes may rejoin, use --rdzv-backend=c10d");
}

// Of the events before this node arrived, only those that still have an effect concern it.
Result<void> Meeting::skip_history() {
  while (true) {
    const auto next = journal_->news_if_at(next_news_);
    if (!next) return next.error();
    if (!*next) return {};
    const News& news = **next;
    std::unique_lock lock(mutex_);
    ++next_news_;
    if (const auto* lead = std::get_if<LeadRecord>(&news)) leader_ = lead->id;
    if (const auto* round = std::get_if<RoundRecord>(&news)) note_room(*round);
    const auto* over = std::get_if<OverRecord>(&news);
    if (!over) continue;
    wait_.go_on(Clock::now());
    if (over->job_ends) {
      lock.unlock();
      return refuse(Error(fmt::format("the job \"{}\" has ended: {}", settings_.run_id, over->why))
                        .with_hint("give a new job another --rdzv-id, or another store"));
    }
  }
}

// Requires mutex_. A spare may wait as long as the job runs.
void Meeting::note_room(const RoundRecord& round) {
  if (static_cast<int>(round.members.size()) >= settings_.max_nodes) wait_.end();
}

Result<void> Meeting::follow() {
  const auto is_there = journal_->wait_for_news(next_news_, time_to_wait());
  if (!is_there) return is_there.error();
  if (!*is_there) return look_at_time();
  const auto place = next_news_;
  const auto news = journal_->news_at(place);
  if (!news) return news.error();
  {
    const std::lock_guard lock(mutex_);
    ++next_news_;
  }
  auto taken = take(*news);
  if (!taken) {  // reads it again when the store comes back
    const std::lock_guard lock(mutex_);
    next_news_ = place;
  }
  return taken;
}

milliseconds Meeting::time_to_wait() const {
  const std::lock_guard lock(mutex_);
  return wait_.until_due(Clock::now(), settings_.keep_alive_interval);
}

Result<void> Meeting::take(const News& news) {
  if (const auto* over = std::get_if<OverRecord>(&news)) {
    take_end(*over);
    return {};
  }
  if (const auto* round = std::get_if<RoundRecord>(&news)) return take_round(*round);
  const auto& lead = std::get<LeadRecord>(news);
  {
    const std::lock_guard lock(mutex_);
    leader_ = lead.id;
    if (lead.id < 0 && has_left_) return {};
  }
  if (lead.id < 0) {
    lead_.reset();
    const auto announced = journal_->announce(next_news_, LeadRecord{id_, -1});
    return announced ? Result<void>() : announced.error();
  }
  if (lead.id != id_) {
    lead_.reset();
  } else if (!lead_) {
    auto journal = journal_->clone();
    if (!journal) return journal.error();
    lead_ = std::make_unique<Leader>(
        std::move(*journal), settings_, id_, place_->may_return(),
        [this](const Error& error, const Journal& lost) { fail(lost.has_misread() ? error : place_->lost(error)); });
  }
  return {};
}

Result<void> Meeting::take_round(const RoundRecord& record) {
  const auto& members = record.members;
  const auto self = std::find_if(members.begin(), members.end(), [this](const auto& each) { return each.id == id_; });
  {
    const std::lock_guard lock(mutex_);
    if (self == members.end()) {
      note_room(record);
      return {};
    }
    round_.begin(record, static_cast<int>(self - members.begin()));
    wait_.end();
  }
  const auto place = agree_on_workers_place(record);
  if (!place) return place.error();
  if (!*place) return {};
  Round round;
  round.job = job_;
  round.number = record.number;
  round.restart_count = record.restart_count;
  round.max_restarts = record.max_restarts;
  round.node_rank = round_.rank();
  for (const auto& member : members) round.nodes.push_back(member.node);
  round.store_address = (*place)->address;
  round.store_port = (*place)->port;
  round.agent_hosts_store = (*place)->agent_hosts_store;
  const std::lock_guard lock(mutex_);
  round_.note_told();
  events_.push(std::move(round));
  return {};
}

// Returns nothing if the round is over before its node 0 has written the place.
Result<std::optional<WorkersPlace>> Meeting::agree_on_workers_place(const RoundRecord& round) {
  const auto key = "workers/" + std::to_string(round.number);
  if (round_.rank() == 0) {
    const auto& address = round.members[0].node.address;
    auto workers = WorkerStore::open(where_to_listen(settings_.bind, address), settings_.family);
    if (!workers) {
      leave(workers.error().message());
      events_.push(workers.error());
      return std::optional<WorkersPlace>();
    }
    workers_ = std::move(*workers);
    const WorkersPlace place{address, workers_.port(), workers_.is_hosted()};
    if (auto set = journal_->set(key, to_text(place)); !set) return set.error();
    return std::optional(place);
  }
  workers_ = WorkerStore();
  while (!stops_) {
    const auto text = journal_->get(key, settings_.keep_alive_interval);
    if (!text) return text.error();
    if (*text) {
      auto place = parse_workers_place(**text);
      if (!place) return place.error();
      return std::optional(std::move(*place));
    }
    const auto is_over = take_leads();
    if (!is_over) return is_over.error();
    if (*is_over) break;
  }
  return std::optional<WorkersPlace>();
}

// Reads the next news about the leader. Returns whether other news follows it.
Result<bool> Meeting::take_leads() {
  while (true) {
    const auto next = journal_->news_if_at(next_news_);
    if (!next) return next.error();
    if (!*next) return false;
    const News& news = **next;
    if (!std::holds_alternative<LeadRecord>(news)) return true;
    {
      const std::lock_guard lock(mutex_);
      ++next_news_;
    }
    if (auto taken = take(news); !taken) return taken.error();
  }
}

void Meeting::take_end(const OverRecord& over) {
  std::unique_lock lock(mutex_);
  const bool is_mine = round_.is_running(over.round);
  if (over.job_ends) set_ended();
  if (!is_mine && !over.job_ends) return wait_.go_on(Clock::now());
  RoundOver event{is_mine ? over.reason : Reason::kClosed, over.why, -1, over.job_ends};
  for (size_t rank = 0; is_mine && rank < round_.record()->members.size(); ++rank) {
    if (round_.record()->members[rank].id == over.id) event.node_rank = static_cast<int>(rank);
  }
  const bool was_told = round_.end();
  if (has_left_) return;
  if (was_told || over.job_ends) {
    events_.push(std::move(event));
    return;
  }
  // The agent has not heard of the round.
  lock.unlock();
  join_next();
}

Result<void> Meeting::look_at_time() {
  const auto now = Clock::now();
  std::unique_lock lock(mutex_);
  const auto due = has_left_ ? RoundWait::Due::kNothing : wait_.look(now);
  if (due == RoundWait::Due::kNothing) return {};
  const auto left = wait_.left(now);
  lock.unlock();
  const auto why = journal_->get("why");
  if (!why) return why.error();
  auto text = *why ? **why : std::string("the leading node has said nothing yet");
  const auto hint = hint_for_waiting();
  if (due == RoundWait::Due::kExplanation) {
    if (!hint.empty()) text += "; " + hint;
    base::log_warning(fmt::format("rendezvous \"{}\" at {}: {}; {} left", settings_.run_id, place_->name(), text,
                                  base::format_duration(left)));
    return {};
  }
  (void)journal_->tell({Notice::Kind::kGone, id_, 0, "it gave up waiting", {}});
  if (place_->is_hosted_here()) {
    auto gave_up = fmt::format("{}, which hosts the rendezvous, has given up waiting: {}", base::host_name(), text);
    (void)end_round(*journal_, {-1, Reason::kNodeLeft, std::move(gave_up), id_, true});
  }
  auto error = Error(fmt::format("the rendezvous \"{}\" at {} was not complete within {}", settings_.run_id,
                                 place_->name(), base::format_duration(settings_.join_timeout)))
                   .caused_by(Error(text));
  fail(hint.empty() ? std::move(error) : std::move(error).with_hint(hint));
  return {};
}

std::string Meeting::hint_for_waiting() const {
  const std::lock_guard lock(mutex_);
  // Nodes that have met before need no such hint.
  if (!round_.record()) return place_->doubt();
  return fmt::format(
      "start the same command again on another host or on the lost node's host; with --nnodes=1:{} a job goes on with "
      "fewer nodes",
      settings_.max_nodes);
}

}  // namespace cohort::rendezvous
