#include "cohort/comm/peers.h"

#include <signal.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <array>
#include <fstream>
#include <sstream>
#include <thread>

namespace cohort::comm {
namespace {

struct ProcessState {
  bool exists = false;
  bool zombie = false;
  std::string started_at;
};

// /proc/<pid>/stat: pid (name) state ...; the name may hold spaces and brackets, so fields count from the last one.
ProcessState read_process_state(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return {};
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string field;
  ProcessState state{.exists = true};
  for (int i = 3; fields >> field; ++i) {
    if (i == 3) state.zombie = field == "Z" || field == "X";
    if (i == 22) {
      state.started_at = field;
      break;
    }
  }
  return state;
}

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

bool is_gone(const Peer& peer) {
  const auto state = read_process_state(peer.pid);
  return !state.exists || state.zombie || state.started_at != peer.started_at;
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
  if (peer->second.pid_scope == self_.pid_scope && is_gone(peer->second)) return true;
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
    if (rank != rank_ && peer.pid_scope == self_.pid_scope && is_gone(peer)) lost.push_back(rank);
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
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(peer->second.pid) + " on " + peer->second.host +
         ")";
}

int Peers::ranks_on_this_host() const {
  int count = 0;
  for (const auto& [rank, peer] : peers_) count += peer.pid_scope == self_.pid_scope && peer.host == self_.host;
  return count;
}

}  // namespace cohort::comm
