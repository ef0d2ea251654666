/// FileSlots: this rank's two memory files in the launcher's vault, by turns: one has the generation that all ranks have, the
/// other is written next.
/// Thread-safety: none.
#pragma once

#include <cstdint>
#include <optional>

#include "cohort/vault/generation_file.h"
#include "cohort/vault/place.h"
#include "cohort/vault/vault_client.h"

namespace cohort::vault {

/// Files grow by more than is asked for, as descriptions vary a little in length.
constexpr uint64_t kSpareBytes = uint64_t{64} << 10;

class FileSlots {
 public:
  /// `place` must outlive this.
  explicit FileSlots(const Place& place) : place_(place) {}

  /// A file that the vault has; `is_complete`: all ranks have its generation.
  void adopt(int slot, const GenerationFile& file, bool is_complete);
  /// The next file gets room for so many bytes.
  base::Result<void> make_room(VaultClient& vault, uint64_t num_bytes);
  int next_slot() const { return 1 - complete_; }
  /// Requires make_room().
  GenerationFile& next() { return *files_[next_slot()]; }
  /// All ranks have what was written to the next file.
  void turn() { complete_ = next_slot(); }
  /// Both files go.
  void drop(VaultClient& vault);

 private:
  const Place& place_;
  std::optional<GenerationFile> files_[2];
  int complete_ = 1;
};

}  // namespace cohort::vault
