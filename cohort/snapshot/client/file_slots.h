/// FileSlots: this rank's two memory files on the launcher's snapshot server, used alternately: one has the version that all
/// ranks have, the other is written next.
/// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>

#include "cohort/snapshot/place.h"
#include "cohort/snapshot/server_connection.h"
#include "cohort/snapshot/version_file.h"

namespace cohort::snapshot {

/// Files are created with this much extra space, because descriptions vary a little in length.
constexpr uint64_t kSpareBytes = uint64_t{64} << 10;

class FileSlots {
 public:
  /// `place` must outlive this object.
  explicit FileSlots(const Place& place) : place_(place) {}

  /// Uses a file that the server has. `is_complete` says whether all ranks have its version.
  void adopt(int slot, const VersionFile& file, bool is_complete);
  /// Makes sure that the next file has space for `num_bytes`.
  base::Result<void> reserve(ServerConnection& server, uint64_t num_bytes);
  int next_slot() const { return 1 - complete_; }
  /// Requires reserve().
  VersionFile& next() { return *files_[next_slot()]; }
  /// Swaps the files, after all ranks have the version in the next file.
  void turn() { complete_ = next_slot(); }
  /// Deletes both files.
  void drop(ServerConnection& server);

 private:
  const Place& place_;
  std::optional<VersionFile> files_[2];
  int complete_ = 1;
};

}  // namespace cohort::snapshot
