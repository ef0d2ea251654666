#include "cohort/comm/peers.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <thread>

namespace cohort::comm {

Peers::Peers(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size)
    : store_(std::move(store)), rank_(rank), world_size_(world_size) {
  self_ = this_process();
  self_.world_size = world_size;
  peers_[rank_] = self_;
}

std::string Peers::key(const char* kind, int rank) const {
  return std::string("cohort/") + kind + "/" + std::to_string(rank);
}

void Peers::publish() {
  const auto text = encode(self_);
  store_->set(key("start", rank_), std::vector<uint8_t>(text.begin(), text.end()));
}

void Peers::collect() {
  try {
    for (int rank = 0; rank < world_size_; ++rank) {
      if (rank == rank_ || !store_->check({key("start", rank)})) continue;
      peers_[rank] = decode_peer(store_->get(key("start", rank)));
    }
  } catch (const std::exception&) {
    // The rank that hosts the store may already have ended; failures are then described without processes.
  }
}

void Peers::publish_failure() {
  try {
    store_->set(key("failed", rank_), std::vector<uint8_t>{1});
  } catch (const std::exception&) {
    // The store may have died with its host; the processes of this host can still be looked at.
  }
}

bool Peers::knows_of_failure(int rank) const {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end()) return true;  // nothing is known of it, so nothing to wait for
  if (is_seen_gone(peer->second)) return true;
  return store_->check({key("failed", rank)});
}

void Peers::wait_until_others_know(std::chrono::milliseconds limit) const {
  if (rank_ != 0) return;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  int rank = 1;
  try {
    while (rank < world_size_ && std::chrono::steady_clock::now() < deadline) {
      if (knows_of_failure(rank)) {
        ++rank;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  } catch (const std::exception&) {
    // The store is gone; there is nothing left to keep.
  }
}

std::vector<int> Peers::lost_ranks() const {
  std::vector<int> lost;
  for (const auto& [rank, peer] : peers_) {
    if (rank != rank_ && is_seen_gone(peer)) lost.push_back(rank);
  }
  // A rank that reported a failure before it ended is a consequence, not the cause.
  std::vector<int> first;
  for (int rank : lost) {
    try {
      if (!store_->check({key("failed", rank)})) first.push_back(rank);
    } catch (const std::exception&) {
      return lost;
    }
  }
  return first.empty() ? lost : first;
}

std::string Peers::describe(int rank) const {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end()) return "rank " + std::to_string(rank);
  return "rank " + std::to_string(rank) + " (" + describe_process(peer->second) + ")";
}

int Peers::ranks_on_this_host() const {
  int count = 0;
  for (const auto& [rank, peer] : peers_) count += peer.pid_scope == self_.pid_scope && peer.host == self_.host;
  return count;
}

}  // namespace cohort::comm
