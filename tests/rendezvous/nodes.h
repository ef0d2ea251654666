// Nodes of a rendezvous in one process: each has settings with short times, and its events can be awaited.
#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cohort/rendezvous/rendezvous.h"

namespace cohort::rendezvous {

inline constexpr std::chrono::seconds kHang{60};

class TestNode {
 public:
  explicit TestNode(const Settings& settings) : start_(Rendezvous::start(settings)) {}

  Rendezvous& operator*() { return *start_.value(); }
  Rendezvous* operator->() { return start_.value().get(); }
  void destroy() { start_.value().reset(); }

  /// Nothing when none comes for `time`.
  std::optional<Event> next(std::chrono::milliseconds time = kHang) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (true) {
      if (auto event = (*this)->next_event()) return event;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) return std::nullopt;
      pollfd poll_fd{(*this)->fd(), POLLIN, 0};
      ::poll(&poll_fd, 1, static_cast<int>(left.count()));
    }
  }

 private:
  base::Result<std::unique_ptr<Rendezvous>> start_;
};

/// "round 0 of 2 nodes, restart 0 of 3, as node 1", "over: kWorkerFailed by node 0: why", "error: ..."
inline std::string describe(const std::optional<Event>& event) {
  static const char* const kReasons[] = {"finished",  "worker failed", "nodes waiting",
                                         "node left", "node lost",     "closed"};
  if (!event) return "nothing";
  if (const auto* error = std::get_if<base::Error>(&*event)) return "error: " + error->describe();
  if (const auto* over = std::get_if<RoundOver>(&*event)) {
    return std::string(kReasons[static_cast<int>(over->reason)]) + " by node " + std::to_string(over->node_rank) +
           (over->job_ends ? ", job ends: " : ": ") + over->why;
  }
  const auto& round = std::get<Round>(*event);
  return "round " + std::to_string(round.number) + " of " + std::to_string(round.nodes.size()) + " nodes, restart " +
         std::to_string(round.restart_count) + " of " + std::to_string(round.max_restarts) + ", as node " +
         std::to_string(round.node_rank);
}

}  // namespace cohort::rendezvous
