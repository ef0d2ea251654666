#include "cohort/comm/explain.h"

#include <algorithm>
#include <thread>

#include "cohort/base/text.h"

namespace cohort::comm {
namespace {

using Clock = std::chrono::steady_clock;

bool is_timeout(const std::string& text) {
  return text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
}

// Members of the group come first: a rank outside it may have ended in good order.
std::vector<int> lost_members(const Peers& peers, const std::vector<int>& members) {
  auto lost = peers.lost_ranks();
  std::erase_if(lost, [&](int rank) { return std::find(members.begin(), members.end(), rank) == members.end(); });
  return lost;
}

// A peer's socket closes a moment before its process is seen to be gone.
std::vector<int> wait_for_lost_members(const Peers& peers, const std::vector<int>& members, bool may_come) {
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  auto lost = lost_members(peers, members);
  while (lost.empty() && may_come && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    lost = lost_members(peers, members);
  }
  return lost;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::shared_ptr<const ExplainFailure> make_explainer(std::shared_ptr<Peers> peers, std::vector<int> ranks,
                                                     std::chrono::milliseconds timeout) {
  auto explain = [peers = std::move(peers), ranks = std::move(ranks), timeout](const OperationInfo& operation,
                                                                               const std::string& engine_text) {
    Failure failure{.operation = operation};
    const bool timed_out = is_timeout(engine_text);
    const auto lost = wait_for_lost_members(*peers, ranks, !timed_out);
    peers->publish_failure();
    for (const int rank : lost) failure.causes.push_back(peers->describe(rank) + " is gone");
    if (lost.empty() && timed_out) {
      failure.causes.push_back("no answer from the other ranks within the group's time-out of " +
                               base::format_duration(timeout));
    }
    failure.causes.push_back(first_line(engine_text));
    if (!lost.empty()) {
      failure.hint = "look at the output of " + ranks_in_words(lost) + " for the reason";
    } else if (timed_out) {
      failure.hint =
          "if a rank is only slow, raise InitOptions::timeout; otherwise see which rank did not reach this "
          "operation";
    } else {
      failure.hint = "a rank on another host ended or its connection broke; look at the other ranks' output";
    }
    return failure_message(failure);
  };
  return std::make_shared<ExplainFailure>(std::move(explain));
}

}  // namespace cohort::comm
