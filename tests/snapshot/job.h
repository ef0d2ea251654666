/// A job in one process, for tests of snapshot clients: launchers' snapshot servers, a store for each round, ranks that are
/// threads.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cohort/snapshot/snapshot_client.h"
#include "cohort/snapshot/snapshot_server.h"
#include "cohort/store/tcp/tcp_server.h"

namespace cohort::snapshot {

/// Nodes of two ranks each. The state of a rank is its own bytes and bytes that all ranks have alike.
class Job {
 public:
  explicit Job(int num_nodes, const std::string& token = "") {
    for (int node = 0; node < num_nodes; ++node) nodes.push_back(start_node(token));
    next_round();
  }

  static std::unique_ptr<SnapshotServer> start_node(const std::string& token = "") {
    return SnapshotServer::start(token).value();
  }

  void next_round() {
    store = store::TcpServer::start({.host = "127.0.0.1"}).value();
    std::vector<std::string> public_keys;
    for (const auto& node : nodes) public_keys.push_back(node->public_key());
    for (const auto& node : nodes) (void)node->serve_nodes("127.0.0.1", public_keys);
  }

  int world_size() const { return static_cast<int>(nodes.size()) * 2; }

  Place place(int rank) const {
    return {.server = nodes[static_cast<size_t>(rank / 2)]->name(),
            .rank = rank,
            .world_size = world_size(),
            .local_rank = rank % 2,
            .local_world_size = 2,
            .node = rank / 2,
            .num_nodes = static_cast<int>(nodes.size()),
            .store_host = "127.0.0.1",
            .store_port = store->port()};
  }

  /// Each rank in a thread of its own, with a snapshot client.
  void on_ranks(const std::function<void(SnapshotClient& client, int rank)>& run) const {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world_size(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto client = SnapshotClient::create(place(rank), "test").value();
        run(*client, rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<std::unique_ptr<SnapshotServer>> nodes;
  std::unique_ptr<store::TcpServer> store;
};

constexpr size_t kOwnBytes = 3000;
constexpr size_t kSharedBytes = 10000;

inline std::byte own_byte(int rank, int64_t step) { return std::byte(rank * 16 + step % 16); }
inline std::byte shared_byte(size_t at, int64_t step) { return std::byte((at * 7 + static_cast<size_t>(step)) % 251); }

/// Begins a version and copies all of it but the last word. `own_bytes`: as kOwnBytes, or others.
inline void write_state(SnapshotClient& client, int rank, int64_t step, size_t own_bytes = kOwnBytes,
                        size_t shared_bytes = kSharedBytes) {
  Version version{
      .step = step, .suits_other_worlds = own_bytes == 0, .num_own_bytes = own_bytes, .shared_total = shared_bytes};
  version.shared_layout = shared_bytes;
  Slot slot = client.begin(version, "step " + std::to_string(step)).value();
  std::memset(slot.own.data(), static_cast<int>(own_byte(rank, step)), slot.own.size());
  for (size_t i = 0; i < slot.shared.size(); ++i) slot.shared[i] = shared_byte(slot.shared_begin + i, step);
}

inline void keep_state(SnapshotClient& client, int rank, int64_t step, size_t own_bytes = kOwnBytes) {
  write_state(client, rank, step, own_bytes);
  client.commit();
}

/// Returns the difference of `found` from the state of `rank` at `step`; "" if there is none.
inline std::string problem_of(const Found& found, int rank, int64_t step, size_t own_bytes = kOwnBytes) {
  if (found.choice.step != step) return "step " + std::to_string(found.choice.step);
  if (found.meta != "step " + std::to_string(step)) return "meta " + found.meta;
  if (found.own.size() != own_bytes) return "own size " + std::to_string(found.own.size());
  for (const std::byte byte : found.own) {
    if (byte != own_byte(rank, step)) return "own bytes";
  }
  size_t at = 0;
  for (const Found::Share& share : found.shares) {
    if (share.begin != at) return "shares are out of order";
    for (const std::byte byte : share.bytes) {
      if (byte != shared_byte(at++, step)) return "shared byte " + std::to_string(at - 1);
    }
  }
  return at == kSharedBytes ? "" : "shared size " + std::to_string(at);
}

}  // namespace cohort::snapshot
