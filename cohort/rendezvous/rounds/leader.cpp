#include "cohort/rendezvous/rounds/leader.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>

#include "cohort/base/log/log.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/text/text.h"

namespace cohort::rendezvous {
namespace {

using base::Result;
using std::chrono::milliseconds;

constexpr milliseconds kLeaderPause{100};

}  // namespace

Leader::Leader(std::unique_ptr<Journal> journal, Settings settings, NodeId id, bool store_may_return,
               WhenLost when_lost)
    : journal_(std::move(journal)),
      settings_(std::move(settings)),
      id_(id),
      store_may_return_(store_may_return),
      when_lost_(std::move(when_lost)) {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "cohort-leader");
}

Leader::~Leader() {
  stops_ = true;
  journal_->store().interrupt();
  thread_.join();
}

// Retries, because the node may go on after a failure: perhaps only this connection was lost, and no other thread reads notices.
void Leader::run() {
  while (true) {
    const auto led = lead();
    if (led || stops_) return;
    if (!store_may_return_ || journal_->has_misread()) return when_lost_(led.error(), *journal_);
    base::log_debug("the rendezvous' leader tries again: " + led.error().describe());
    std::this_thread::sleep_for(kLeaderPause);
  }
}

Result<void> Leader::lead() {
  while (!stops_) {
    if (auto read = read_notices(); !read) return read;
    if (auto read = read_news(); !read) return read;
    if (!leads_ || (state_.over && state_.over->job_ends)) return {};
    if (auto read = read_beats(); !read) return read;
    if (auto acted = act(); !acted) return acted;
    if (decision_.news) continue;  // acts on what follows from it at once
    const auto waited = journal_->wait_for_notice(next_notice_, time_until_next(decision_));
    if (!waited) return waited.error();
  }
  return {};
}

Result<void> Leader::read_notices() {
  const auto notices = journal_->notices_from(next_notice_);
  if (!notices) return notices.error();
  for (const auto& notice : *notices) {
    const auto place = next_notice_++;
    state_.take(notice, place);
    if (notice.kind == Notice::Kind::kCome) pulses_[place] = {"", Clock::now()};
  }
  if (!notices->empty()) gap_since_.reset();
  const auto count = journal_->num_notices();
  if (!count) return count.error();
  if (*count <= next_notice_) return {};
  // A node is about to write it, or died before that.
  const auto now = Clock::now();
  if (!gap_since_) gap_since_ = now;
  if (now - *gap_since_ < settings_.keep_alive_interval) return {};
  gap_since_.reset();
  return journal_->close_gap(next_notice_);
}

Result<void> Leader::read_news() {
  while (true) {
    const auto next = journal_->news_if_at(next_news_);
    if (!next) return next.error();
    if (!*next) return {};
    const News& news = **next;
    ++next_news_;
    state_.take(news);
    const auto* lead = std::get_if<LeadRecord>(&news);
    if (!lead) continue;
    leads_ = lead->id == id_;
    // Its time counts as over, unless it sends another heartbeat.
    if (lead->silent >= 0) pulses_[lead->silent] = {"", Clock::time_point()};
  }
}

// Only this node's clock counts: a node is alive while its counter changes.
Result<void> Leader::read_beats() {
  const auto now = Clock::now();
  if (now - beats_read_at_ < settings_.keep_alive_interval / 2) return {};
  std::vector<NodeId> ids;
  for (const auto& [id, node] : state_.nodes) {
    if (!node.has_gone) ids.push_back(id);
  }
  const auto beats = journal_->beats(ids);
  if (!beats) return beats.error();
  // A pause of this process, as after SIGSTOP, says nothing about the others.
  const bool were_away = beats_read_at_ != Clock::time_point() && now - beats_read_at_ > settings_.lost_after() / 2;
  for (size_t i = 0; i < ids.size(); ++i) {
    auto& pulse = pulses_[ids[i]];
    const bool is_first_look = pulse.beat.empty();
    if ((!is_first_look && pulse.beat != (*beats)[i]) || were_away) pulse.changed_at = now;
    pulse.beat = (*beats)[i];
    state_.nodes[ids[i]].is_silent = ids[i] != id_ && now - pulse.changed_at >= settings_.lost_after();
  }
  beats_read_at_ = now;
  return {};
}

Result<void> Leader::act() {
  const auto now = Clock::now();
  note_time(&state_, settings_, now);
  decision_ = decide(state_, settings_, now);
  say(decision_);
  if (!decision_.news) return publish(decision_.why);
  // If other news came first, the decision may be wrong by now: read that news and decide again.
  const auto announced = journal_->announce(next_news_, *decision_.news);
  if (!announced) return announced.error();
  return {};
}

// Publishes the reason for the nodes that wait; see Meeting::explain.
Result<void> Leader::publish(const std::string& why) {
  if (why == said_) return {};
  said_ = why;
  return journal_->set("why", why);
}

void Leader::say(const Decision& decision) {
  if (decision.why != said_) base::log_info(fmt::format("rendezvous \"{}\": {}", settings_.run_id, decision.why));
}

milliseconds Leader::time_until_next(const Decision& decision) const {
  auto time = settings_.keep_alive_interval / 2;
  if (gap_since_) time = std::min(time, milliseconds(50));
  if (decision.until) time = std::min(time, base::time_left(*decision.until));
  return std::max(time, milliseconds(1));
}

}  // namespace cohort::rendezvous
