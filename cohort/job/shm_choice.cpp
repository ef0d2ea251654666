#include "cohort/job/shm_choice.h"

#include <fmt/format.h>
#include <algorithm>

#include "cohort/base/text/text.h"

namespace cohort::job {
namespace {

constexpr size_t kMostNamed = 8;

std::string obstacle(const Arrival& member, const Arrival& first) {
  const auto name = "rank " + std::to_string(member.rank);
  if (!member.peer) return name + " is a Python process without torchcohort";
  const auto& peer = *member.peer;
  if (!peer.shm_obstacle.empty()) return name + " cannot share memory: " + peer.shm_obstacle;
  if (peer.shm_scope.empty()) return name + " runs another release of Cohort";
  if (!first.peer || first.peer->shm_scope.empty() || peer.shm_scope == first.peer->shm_scope) return {};
  if (peer.host != first.peer->host) return name + " is on another host (" + peer.host + ")";
  return fmt::format("{} shares no memory with rank {}: another container or user, or another COHORT_HOST_ID", name,
                     first.rank);
}

}  // namespace

std::vector<std::string> obstacles_to_shm(const std::vector<Arrival>& members) {
  std::vector<std::string> found;
  for (const auto& member : members) {
    auto text = obstacle(member, members.front());
    if (!text.empty()) found.push_back(std::move(text));
  }
  return found;
}

Failure shm_refusal(const std::string& group, const std::vector<std::string>& obstacles) {
  Failure failure{.kind = Failure::Kind::kArgument,
                  .hint =
                      "use backend \"gloo\"; or name no backend: Cohort then uses \"shm\" where all ranks can share "
                      "memory",
                  .what = "group \"" + group + "\" cannot use backend \"shm\""};
  for (size_t i = 0; i < std::min(obstacles.size(), kMostNamed); ++i) failure.causes.push_back(obstacles[i]);
  if (obstacles.size() > kMostNamed) failure.note = fmt::format("and {} more", obstacles.size() - kMostNamed);
  return failure;
}

}  // namespace cohort::job
