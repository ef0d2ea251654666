#include "cohort/comm/group/roster.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cohort/job/shm_choice.h"

namespace cohort::comm {

Roster::Roster(std::shared_ptr<Peers> peers, const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size)
    : store_(store), peers_(std::move(peers)), reports_(std::make_shared<Reports>(store, peers_, rank, world_size)) {}

std::shared_ptr<Roster> Roster::by_membership_check(const MembershipCheck& check) {
  auto peers = std::make_shared<Peers>(check.store, check.rank, check.world_size);
  peers->learn(check_membership(check));
  return std::shared_ptr<Roster>(new Roster(std::move(peers), check.store, check.rank, check.world_size));
}

std::shared_ptr<Roster> Roster::unannounced(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size) {
  auto peers = std::make_shared<Peers>(store, rank, world_size);
  peers->publish();
  return std::shared_ptr<Roster>(new Roster(std::move(peers), store, rank, world_size));
}

std::vector<job::Arrival> Roster::arrivals(const std::vector<int>& ranks) const {
  std::vector<job::Arrival> found;
  for (const int rank : ranks) found.push_back(peers_->arrival(rank));
  return found;
}

std::vector<int> Roster::pids(const std::vector<int>& ranks) const {
  std::vector<int> pids;
  for (const auto& arrival : arrivals(ranks)) {
    if (!arrival.peer) return {};
    pids.push_back(arrival.peer->pid);
  }
  return pids;
}

std::vector<std::string> Roster::shm_obstacles(const std::vector<int>& ranks) const {
  return job::obstacles_to_shm(arrivals(ranks));
}

std::shared_ptr<OperationWatch> Roster::watch(WatchedGroup group) {
  // The watch keeps the roster alive, by which later groups of the job know each other.
  const auto self = shared_from_this();
  return make_process_watch({self, peers_.get()}, {self, reports_.get()}, std::move(group));
}

}  // namespace cohort::comm
