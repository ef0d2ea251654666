#include "cohort/comm/process_watch.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>

#include "cohort/base/text.h"
#include "cohort/comm/failure_text.h"

namespace cohort::comm {
namespace {

using Clock = std::chrono::steady_clock;
// The others' connections break within milliseconds; a rank that is stopped must not hold the report up for long.
constexpr auto kStoreGrace = std::chrono::seconds(2);
// A rank may end in good order while the others still finish the operation it has taken part in.
constexpr auto kLostGrace = std::chrono::seconds(4);

bool is_timeout(const std::string& text) {
  return text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

class ProcessWatch final : public OperationWatch {
 public:
  ProcessWatch(std::shared_ptr<Peers> peers, std::vector<int> ranks, std::chrono::milliseconds timeout)
      : peers_(std::move(peers)), ranks_(std::move(ranks)), timeout_(timeout) {}

  void starting(const Operation&) override {}

  std::string find_obstacle(const Operation&) override {
    const std::lock_guard lock(mutex_);
    if (lost_.empty()) lost_ = lost_members();
    if (lost_.empty()) return {};
    if (!lost_since_) lost_since_ = Clock::now();
    return Clock::now() - *lost_since_ > kLostGrace ? "the operation no longer makes progress" : "";
  }

  std::string explain(const Operation& operation, const std::string& engine_text) override {
    const bool timed_out = is_timeout(engine_text);
    const auto seen_lost = seen_lost_members();
    const auto lost = seen_lost.empty() ? wait_for_lost_members(!timed_out) : seen_lost;
    peers_->publish_failure();
    peers_->wait_until_others_know(kStoreGrace);
    Failure failure{.operation = operation, .causes = {}, .hint = {}};
    for (const int rank : lost) failure.causes.push_back(peers_->describe(rank) + " is gone");
    if (lost.empty() && timed_out) {
      failure.causes.push_back("no answer from the other ranks within the group's time-out of " +
                               base::format_duration(timeout_));
    }
    failure.causes.push_back(first_line(engine_text));
    failure.hint = hint(lost, timed_out);
    return failure_message(failure);
  }

 private:
  // A rank outside the group may have ended in good order.
  std::vector<int> lost_members() const {
    auto lost = peers_->lost_ranks();
    std::erase_if(lost, [&](int rank) { return std::find(ranks_.begin(), ranks_.end(), rank) == ranks_.end(); });
    return lost;
  }

  std::vector<int> seen_lost_members() {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

  // A peer's socket closes a moment before its process is seen to be gone.
  std::vector<int> wait_for_lost_members(bool may_come) const {
    const auto deadline = Clock::now() + std::chrono::seconds(1);
    auto lost = lost_members();
    while (lost.empty() && may_come && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      lost = lost_members();
    }
    return lost;
  }

  static std::string hint(const std::vector<int>& lost, bool timed_out) {
    if (!lost.empty()) return "look at the output of " + ranks_in_words(lost) + " for the reason";
    if (timed_out) {
      return "if a rank is only slow, raise InitOptions::timeout; otherwise see which rank did not reach this "
             "operation";
    }
    return "a rank on another host ended or its connection broke; look at the other ranks' output";
  }

  std::shared_ptr<Peers> peers_;
  std::vector<int> ranks_;
  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  /// The first of them only: others may have ended since because of them.
  std::vector<int> lost_;
  std::optional<Clock::time_point> lost_since_;
};

}  // namespace

std::shared_ptr<OperationWatch> make_process_watch(std::shared_ptr<Peers> peers, std::vector<int> ranks,
                                                   std::chrono::milliseconds timeout) {
  return std::make_shared<ProcessWatch>(std::move(peers), std::move(ranks), timeout);
}

}  // namespace cohort::comm
