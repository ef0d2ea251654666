#include "cohort/comm/watch/process_watch.h"

#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "cohort/base/system/deadline.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/call/purpose.h"
#include "cohort/comm/watch/diagnosis.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/comm/watch/unwrapped_training.h"

namespace cohort::comm {
namespace {

using base::Failure;
using job::Operation;
using Clock = std::chrono::steady_clock;
using Kind = Failure::Kind;

// The time that rank 0 waits for others: connections break within milliseconds, and a stopped rank must not delay the report.
constexpr auto kWatchStoreGrace = std::chrono::seconds(2);
// The time that an ended rank may be missing: it may end well while others still finish an operation that it has completed.
constexpr auto kLostGrace = std::chrono::seconds(4);
// The time to find a cause: a peer's socket closes a moment before its process ends, or before its report is in the store.
constexpr auto kReportGrace = std::chrono::seconds(1);
// The time to find a difference: the others publish where they wait after a little more than a second.
constexpr auto kCrashGrace = std::chrono::seconds(3);
constexpr auto kWatchLookInterval = std::chrono::seconds(1);
// The number of members to check per interval, so that a thousand waiting ranks do not flood the store.
constexpr size_t kMembersPerLook = 8;

class ProcessWatch final : public OperationWatch {
 public:
  ProcessWatch(std::shared_ptr<Peers> peers, std::shared_ptr<Reports> reports, WatchedGroup group)
      : peers_(std::move(peers)),
        reports_(std::move(reports)),
        group_(std::move(group)),
        timeout_(group_.timeout),
        diagnostician_(*peers_, *reports_, group_.ranks, group_.rank) {}

  void starting(const job::Operation& operation) override {
    log_.add(operation);
    const bool exchanges = !operation.reduce_op.empty() || operation.point_to_point || !operation.purpose.empty();
    if (exchanges) gradients_are_exchanged();
    if (c10d::debug_level() == c10d::DebugLevel::Detail && !operation.point_to_point) compare_with_others(operation);
  }

  void delayed(const job::Operation& operation) override { log_.add(operation); }

  std::string find_obstacle(const job::Operation& operation) override {
    const std::lock_guard lock(mutex_);
    look_for_lost_members(operation);
    if (lost_since_ && Clock::now() - *lost_since_ > kLostGrace) {
      obstacle_ = why_lost(operation, lost_);
    } else if (!obstacle_) {
      obstacle_ = look_at_others(operation);
    }
    return obstacle_ ? "the operation can no longer end" : "";
  }

  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }

  std::string explain_crash(const std::string& engine_text) override {
    const auto operation = log_.latest();
    if (!operation) return {};
    const auto mine = log_.account(*operation);
    reports_->publish_waiting(mine);
    const auto deadline = Clock::now() + kCrashGrace;
    while (Clock::now() < deadline) {
      auto found = diagnostician_.disagreement(mine, diagnostician_.others());
      if (!found) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        continue;
      }
      found->causes.push_back(base::first_line(engine_text));
      return failure_text(published(*operation, std::move(*found), mine));
    }
    return {};
  }

  Failure find_cause(const job::Operation& operation, Failure failure) override {
    return find_cause(operation, failure,
                      "a rank on another host ended or its connection broke; look at the other ranks' output");
  }

  Failure explain(const job::Operation& operation, Failure failure) override {
    if (failure.kind == Kind::kObstacle) return find_cause(operation, failure, "look at that rank's output");
    return published(operation, diagnostician_.complete(operation, std::move(failure)), log_.account(operation));
  }

 private:
  Failure find_cause(const job::Operation& operation, const Failure& failure, const char* last_hint) {
    auto found = published(operation, diagnose(operation, failure, last_hint), log_.account(operation));
    reports_->wait_until_others_know(kWatchStoreGrace);
    return found;
  }

  Failure published(const job::Operation& operation, Failure failure, const job::Account& account) {
    failure = failure_of(operation, std::move(failure));
    reports_->publish_failure({failure, account});
    return failure;
  }

  void look_for_lost_members(const job::Operation& operation) {
    if (lost_.empty()) lost_ = diagnostician_.lost_members(operation);
    if (!lost_.empty() && !lost_since_) lost_since_ = Clock::now();
  }

  // Tells where this rank waits, and compares it with a few of the others.
  std::optional<Failure> look_at_others(const job::Operation& operation) {
    const auto now = Clock::now();
    if (operation.sequence != waits_in_ || operation.point_to_point != waits_in_point_to_point_) {
      waits_in_ = operation.sequence;
      waits_in_point_to_point_ = operation.point_to_point;
      published_ = false;
      next_look_ = now + kWatchLookInterval;
      return std::nullopt;
    }
    if (now < next_look_) return std::nullopt;
    next_look_ = now + kWatchLookInterval;
    const auto mine = log_.account(operation);
    if (!published_) reports_->publish_waiting(mine);
    published_ = true;
    const auto others = diagnostician_.others();
    std::vector<int> some;
    for (size_t i = 0; i < std::min(kMembersPerLook, others.size()); ++i) {
      some.push_back(others[next_member_++ % others.size()]);
    }
    return diagnostician_.disagreement(mine, some);
  }

  // `last_hint`: the hint if nothing is found.
  Failure diagnose(const job::Operation& operation, const Failure& failure, const char* last_hint) {
    const auto engine_text = base::first_line(failure.causes.front());
    const auto followed_by_engine = [&](Failure found) {
      found.causes.push_back(engine_text);
      return found;
    };
    {
      const std::lock_guard lock(mutex_);
      if (obstacle_) return *obstacle_;
      if (!lost_.empty()) return followed_by_engine(why_lost(operation, lost_));
    }
    const bool timed_out = failure.kind == Kind::kTimeout;
    if (!timed_out) reports_->publish_waiting(log_.account(operation));
    const auto deadline = Clock::now() + kReportGrace;
    do {
      if (auto found = look_for_cause(operation)) return followed_by_engine(std::move(*found));
      if (timed_out) return followed_by_engine(diagnostician_.timed_out(operation, timeout_));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } while (Clock::now() < deadline);
    return {Kind::kEngine, {engine_text}, lost_rank_hint(last_hint, purpose_of(operation.purpose))};
  }

  // Looks for a difference first: a rank that differs may have ended because of it.
  Failure why_lost(const job::Operation& operation, const std::vector<int>& lost) const {
    const auto differs = diagnostician_.disagreement(log_.account(operation), diagnostician_.others());
    return differs ? *differs : diagnostician_.lost(lost, operation.purpose);
  }

  std::optional<Failure> look_for_cause(const job::Operation& operation) const {
    if (auto found = diagnostician_.disagreement(log_.account(operation), diagnostician_.others())) return found;
    const auto lost = diagnostician_.lost_members(operation);
    if (!lost.empty()) return diagnostician_.lost(lost, operation.purpose);
    return diagnostician_.earlier_failure(operation, timeout_);
  }

  // Every rank that has come this far has passed c10d's own check of names and shapes (ProcessGroupWrapper), so every rank that
  // writes its signature does so now. The signature also contains roots and reduce operations.
  void compare_with_others(const job::Operation& operation) {
    const auto mine = signature(operation);
    const auto prefix = "cohort/call/" + std::to_string(operation.sequence) + "/";
    group_.store->set(prefix + std::to_string(group_.rank), std::vector<uint8_t>(mine.begin(), mine.end()));
    for (const int member : diagnostician_.others()) {
      if (!peers_->knows(group_.ranks[member])) continue;
      const auto key = prefix + std::to_string(member);
      wait_for_signature(operation, member, key);
      const auto bytes = group_.store->get(key);
      const std::string theirs(bytes.begin(), bytes.end());
      if (!job::agree(theirs, mine))
        throw_failure(failure_of(operation, diagnostician_.mismatch(operation.sequence, member, mine, theirs)));
    }
    if (operation.sequence < 2) return;
    // Every rank is in this operation, so nobody reads the key from two operations ago any more.
    group_.store->deleteKey("cohort/call/" + std::to_string(operation.sequence - 2) + "/" +
                            std::to_string(group_.rank));
  }

  void wait_for_signature(const job::Operation& operation, int member, const std::string& key) {
    const auto deadline = base::deadline_after(timeout_.load());
    while (!group_.store->check({key})) {
      if (peers_->is_gone(group_.ranks[member]))
        throw_failure(failure_of(operation, diagnostician_.lost({group_.ranks[member]}, operation.purpose)));
      if (Clock::now() > deadline) throw_failure(failure_of(operation, diagnostician_.timed_out(operation, timeout_)));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::shared_ptr<Peers> peers_;
  std::shared_ptr<Reports> reports_;
  WatchedGroup group_;
  std::atomic<std::chrono::milliseconds> timeout_;
  Diagnostician diagnostician_;
  job::OperationLog log_;

  std::mutex mutex_;
  /// The ranks that were seen lost first: others may have ended because of them.
  std::vector<int> lost_;
  std::optional<Clock::time_point> lost_since_;
  std::optional<Failure> obstacle_;
  uint64_t waits_in_ = 0;
  bool waits_in_point_to_point_ = false;
  bool published_ = false;
  size_t next_member_ = 0;
  Clock::time_point next_look_;
};

}  // namespace

std::shared_ptr<OperationWatch> make_process_watch(std::shared_ptr<Peers> peers, std::shared_ptr<Reports> reports,
                                                   WatchedGroup group) {
  return std::make_shared<ProcessWatch>(std::move(peers), std::move(reports), std::move(group));
}

}  // namespace cohort::comm
