/// SnapshotSearch: which snapshots the vaults of all nodes hold after a restart, and the bytes of the one to go on from.
/// Thread-safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/vault/choice.h"
#include "cohort/vault/generation_file.h"
#include "cohort/vault/keeper/rank_waits.h"
#include "cohort/vault/place.h"
#include "cohort/vault/vault_client.h"

namespace cohort::vault {

/// A generation to go on from, as this rank gets it. Valid until the next begin().
struct Found {
  Choice choice;
  /// The node whose memory this rank's own state comes from, and the shared bytes, if that is another node; -1: its own.
  int from_node = -1;
  /// Of a run with this number of ranks, and made by this rank.
  bool is_same_world = true;
  std::string meta;
  std::span<const std::byte> own;
  struct Share {
    uint64_t begin = 0;
    std::span<const std::byte> bytes;
  };
  /// In order; together all that ranks have alike.
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
  using OwnFiles = std::vector<std::pair<std::string, GenerationFile>>;

  /// All must outlive this.
  SnapshotSearch(const Place& place, RankWaits& waits) : place_(place), waits_(waits) {}

  /// Collective: the nodes tell each other what they have, by keys that begin with `prefix`.
  base::Result<Finding> look(VaultClient& vault, store::Store& store, const std::string& prefix);
  /// Files of this node's vault, by id.
  OwnFiles& own_files() { return own_files_; }
  /// Where a node's vault can be reached, after look().
  const std::string& where(int node) const { return where_[static_cast<size_t>(node)]; }
  /// Nothing more is fetched.
  void end() {
    own_files_.clear();
    remotes_.clear();
  }

 private:
  base::Result<void> read_own_files(VaultClient& vault);
  base::Result<void> exchange_lists(VaultClient& vault, store::Store& store, const std::string& prefix);
  base::Result<void> fetch(VaultClient& vault, Found& found);
  base::Result<std::span<const std::byte>> bytes_from(VaultClient& vault, const Held& held,
                                                      const std::pair<uint64_t, uint64_t>& range, Found& found);
  base::Result<RemoteVault*> remote(VaultClient& vault, int node);

  const Place& place_;
  RankWaits& waits_;
  /// What the nodes hold, as they said in exchange_lists, and where each can be reached.
  std::vector<Held> all_;
  std::vector<std::string> where_;
  OwnFiles own_files_;
  std::vector<std::pair<int, RemoteVault>> remotes_;
};

}  // namespace cohort::vault
