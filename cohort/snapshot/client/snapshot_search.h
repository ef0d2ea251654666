/// SnapshotSearch: finds the snapshots on all nodes' servers after a restart, and reads the version to go on from.
/// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/snapshot/choice.h"
#include "cohort/snapshot/client/rank_waits.h"
#include "cohort/snapshot/place.h"
#include "cohort/snapshot/server_connection.h"
#include "cohort/snapshot/version_file.h"

namespace cohort::snapshot {

/// The version to go on from, as this rank gets it. Valid until the next begin().
struct Found {
  Choice choice;
  /// The node whose memory has this rank's own state, and the replicated bytes, if that is another node; -1 means this node.
  int from_node = -1;
  /// Whether a run with this number of ranks, and this rank, wrote it.
  bool is_same_world = true;
  std::string meta;
  std::span<const std::byte> own;
  struct Share {
    uint64_t begin = 0;
    std::span<const std::byte> bytes;
  };
  /// The parts in order; together all replicated bytes.
  std::vector<Share> shares;
  std::vector<shm::SharedMemoryPtr> mapped = {};
  std::vector<std::vector<std::byte>> fetched = {};
};

struct Finding {
  std::optional<Found> found;
  /// Why nothing was found although there are snapshots; "" otherwise.
  std::string why_not;
};

class SnapshotSearch {
 public:
  using OwnFiles = std::vector<std::pair<std::string, VersionFile>>;

  /// Both must outlive this object.
  SnapshotSearch(const Place& place, RankWaits& waits) : place_(place), waits_(waits) {}

  /// Exchanges the lists of the nodes' snapshots, with keys that begin with `prefix`. Collective.
  base::Result<Finding> look(ServerConnection& server, store::Store& store, const std::string& prefix);
  /// The files of this node's server, by id.
  OwnFiles& own_files() { return own_files_; }
  /// The address of a node's server, after look().
  const std::string& where(int node) const { return where_[static_cast<size_t>(node)]; }
  /// Ends the search; nothing more is fetched.
  void end() {
    own_files_.clear();
    remotes_.clear();
  }

 private:
  base::Result<void> read_own_files(ServerConnection& server);
  base::Result<void> exchange_lists(ServerConnection& server, store::Store& store, const std::string& prefix);
  base::Result<void> fetch(ServerConnection& server, Found& found);
  base::Result<std::span<const std::byte>> bytes_from(ServerConnection& server, const StoredVersion& held,
                                                      const std::pair<uint64_t, uint64_t>& range, Found& found);
  base::Result<RemoteServerConnection*> remote(ServerConnection& server, int node);

  const Place& place_;
  RankWaits& waits_;
  /// The files of all nodes, from exchange_lists, and each node's address.
  std::vector<StoredVersion> all_;
  std::vector<std::string> where_;
  OwnFiles own_files_;
  std::vector<std::pair<int, RemoteServerConnection>> remotes_;
};

}  // namespace cohort::snapshot
