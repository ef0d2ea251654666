#include "cohort/comm/peers.h"

#include <unistd.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <array>
#include <fstream>
#include <sstream>

#include "cohort/comm/process_state.h"

namespace cohort::comm {
namespace {

std::string read_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string pid_scope() {
  std::array<char, 128> link{};
  const auto length = readlink("/proc/self/ns/pid", link.data(), link.size());
  return read_line("/proc/sys/kernel/random/boot_id") + "/" + std::string(link.data(), length > 0 ? length : 0);
}

std::string encode(const Peer& peer) {
  return std::to_string(peer.pid) + "\n" + peer.host + "\n" + peer.pid_scope + "\n" + peer.started_at;
}

Peer decode(const std::vector<uint8_t>& bytes) {
  std::istringstream in(std::string(bytes.begin(), bytes.end()));
  Peer peer;
  std::string pid;
  std::getline(in, pid);
  peer.pid = std::atoi(pid.c_str());
  std::getline(in, peer.host);
  std::getline(in, peer.pid_scope);
  std::getline(in, peer.started_at);
  return peer;
}

bool has_ended(const Peer& peer) {
  const auto state = read_process_state(peer.pid);
  return state.gone() || state.started_at != peer.started_at;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

Peers::Peers(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size)
    : store_(std::move(store)), rank_(rank), world_size_(world_size) {
  self_ = {getpid(), host_name(), pid_scope(), read_process_state(getpid()).started_at};
  peers_[rank_] = self_;
}

std::string Peers::key(const char* kind, int rank) const {
  return std::string("cohort/") + kind + "/" + std::to_string(rank);
}

void Peers::publish() {
  const auto text = encode(self_);
  store_->set(key("peer", rank_), std::vector<uint8_t>(text.begin(), text.end()));
}

void Peers::collect() {
  try {
    for (int rank = 0; rank < world_size_; ++rank) {
      if (rank == rank_ || !store_->check({key("peer", rank)})) continue;
      peers_[rank] = decode(store_->get(key("peer", rank)));
    }
  } catch (const std::exception&) {
    // The rank that hosts the store may already have ended; failures are then described without processes.
  }
}

bool Peers::is_gone(int rank) const {
  const auto peer = peers_.find(rank);
  return rank != rank_ && peer != peers_.end() && is_local(peer->second) && has_ended(peer->second);
}

std::vector<int> Peers::gone_ranks() const {
  std::vector<int> gone;
  for (const auto& [rank, peer] : peers_) {
    if (is_gone(rank)) gone.push_back(rank);
  }
  return gone;
}

std::string Peers::state_in_words(int rank) const {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end() || !is_local(peer->second)) return {};
  return has_ended(peer->second) ? "is gone" : process_state_in_words(peer->second.pid);
}

std::string Peers::describe(int rank) const {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end()) return "rank " + std::to_string(rank);
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(peer->second.pid) + " on " + peer->second.host +
         ")";
}

int Peers::ranks_on_this_host() const {
  int count = 0;
  for (const auto& [rank, peer] : peers_) count += peer.pid_scope == self_.pid_scope && peer.host == self_.host;
  return count;
}

}  // namespace cohort::comm
