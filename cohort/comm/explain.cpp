#include "cohort/comm/explain.h"

#include <algorithm>
#include <thread>

#include "cohort/base/text.h"

namespace cohort::comm {
namespace {

using Clock = std::chrono::steady_clock;
// The others' connections break within milliseconds; a rank that is stopped must not hold the report up for long.
constexpr auto kStoreGrace = std::chrono::seconds(2);

bool is_timeout(const std::string& text) {
  return text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

class ProcessExplainer final : public FailureExplainer {
 public:
  ProcessExplainer(std::shared_ptr<Peers> peers, std::vector<int> ranks, std::chrono::milliseconds timeout)
      : peers_(std::move(peers)), ranks_(std::move(ranks)), timeout_(timeout) {}

  // A rank outside the group may have ended in good order.
  std::vector<int> lost_members() const override {
    auto lost = peers_->lost_ranks();
    std::erase_if(lost, [&](int rank) { return std::find(ranks_.begin(), ranks_.end(), rank) == ranks_.end(); });
    return lost;
  }

  std::string explain(const OperationInfo& operation, const std::string& engine_text,
                      const std::vector<int>& seen_lost) const override {
    const bool timed_out = is_timeout(engine_text);
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
};

}  // namespace

std::shared_ptr<const FailureExplainer> make_explainer(std::shared_ptr<Peers> peers, std::vector<int> ranks,
                                                       std::chrono::milliseconds timeout) {
  return std::make_shared<ProcessExplainer>(std::move(peers), std::move(ranks), timeout);
}

}  // namespace cohort::comm
