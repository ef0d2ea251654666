#include "cohort/comm/watch/peers.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "cohort/base/system/process_state.h"
#include "cohort/job/shared_memory_probe.h"
#include "cohort/shm/engine/group.h"

namespace cohort::comm {

Peers::Peers(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size)
    : store_(std::move(store)), rank_(rank), world_size_(world_size) {
  self_ = job::this_process();
  self_.world_size = world_size;
  peers_[rank_] = self_;
}

std::optional<job::Peer> Peers::find(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto peer = peers_.find(rank);
  return peer == peers_.end() ? std::nullopt : std::optional(peer->second);
}

bool Peers::knows_all() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(peers_.size()) == world_size_;
}

std::map<int, job::Peer> Peers::all() const {
  const std::lock_guard lock(mutex_);
  return peers_;
}

void Peers::put(int rank, const job::Peer& peer) {
  const std::lock_guard lock(mutex_);
  peers_[rank] = peer;
}

std::string Peers::key(const char* kind, int rank) const {
  return std::string("cohort/") + kind + "/" + std::to_string(rank);
}

void Peers::publish() {
  self_.shm_obstacle = job::find_shm_obstacle();
  if (self_.shm_obstacle.empty()) self_.shm_scope = shm::host_scope();
  put(rank_, self_);
  const auto text = encode(self_);
  store_->set(key("start", rank_), std::vector<uint8_t>(text.begin(), text.end()));
}

void Peers::learn(const std::vector<job::Arrival>& arrivals) {
  for (const auto& arrival : arrivals) {
    if (arrival.peer) put(arrival.rank, *arrival.peer);
    if (!arrival.peer) silent_.insert(arrival.rank);
  }
  self_ = *find(rank_);
}

job::Arrival Peers::arrival(int rank) const { return {rank, find(rank), std::nullopt}; }

void Peers::collect() {
  try {
    for (int rank = 0; rank < world_size_; ++rank) {
      if (rank == rank_ || !store_->check({key("start", rank)})) continue;
      const auto entry = store_->get(key("start", rank));
      // A rank that has withdrawn from the membership check leaves an empty entry.
      if (!entry.empty()) put(rank, job::decode_peer(entry));
    }
  } catch (const std::exception&) {
    // The rank that hosts the store may already have ended; failures are then described without processes.
  }
}

void Peers::await(const std::vector<int>& ranks) {
  std::vector<std::string> keys;
  for (const int rank : ranks) {
    if (!knows(rank) && !silent_.contains(rank)) keys.push_back(key("start", rank));
  }
  if (keys.empty()) return;
  try {
    store_->wait(keys, std::chrono::seconds(10));
  } catch (const std::exception&) {
    // A rank that has not come counts as a rank of which nothing is known.
  }
  collect();
  std::copy_if(ranks.begin(), ranks.end(), std::inserter(silent_, silent_.end()),
               [&](int rank) { return !knows(rank); });
}

bool Peers::is_gone(int rank) const {
  const auto peer = rank == rank_ ? std::nullopt : find(rank);
  return peer && is_seen_gone(*peer);
}

bool Peers::is_stopped(int rank) const {
  const auto peer = rank == rank_ ? std::nullopt : find(rank);
  return peer && is_local(*peer) && base::read_process_state(peer->pid).state == 'T';
}

std::vector<int> Peers::gone_ranks() const {
  std::vector<int> gone;
  for (const auto& [rank, peer] : all()) {
    if (rank != rank_ && is_seen_gone(peer)) gone.push_back(rank);
  }
  return gone;
}

std::optional<base::ProcessActivity> Peers::activity(int rank) const {
  const auto peer = find(rank);
  if (!peer || !is_local(*peer)) return {};
  if (is_seen_gone(*peer)) return base::ProcessActivity::kGone;
  return base::read_process_activity(peer->pid);
}

std::string Peers::describe(int rank) const {
  const auto peer = find(rank);
  if (!peer) return "rank " + std::to_string(rank);
  return "rank " + std::to_string(rank) + " (" + job::describe_process(*peer) + ")";
}

int Peers::ranks_on_this_host() const {
  int count = 0;
  for (const auto& [rank, peer] : all()) count += peer.pid_scope == self_.pid_scope && peer.host == self_.host;
  return count;
}

}  // namespace cohort::comm
