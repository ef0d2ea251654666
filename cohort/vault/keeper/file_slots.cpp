#include "cohort/vault/keeper/file_slots.h"

#include <utility>

#include "cohort/vault/choice.h"

namespace cohort::vault {

using base::Error;
using base::Result;

void FileSlots::adopt(int slot, const GenerationFile& file, bool is_complete) {
  files_[slot] = file;
  if (is_complete) complete_ = slot;
}

Result<void> FileSlots::make_room(VaultClient& vault, uint64_t num_bytes) {
  auto& next = files_[next_slot()];
  if (next && next->size() >= num_bytes) return {};
  next.reset();
  base::Fd fd;
  Result<GenerationFile> file = GenerationFile::create(num_bytes + kSpareBytes, &fd);
  if (!file) return file.error();
  if (Result<void> put = vault.put(id_of(place_.rank, next_slot()), fd); !put) return put;
  next = std::move(*file);
  return {};
}

void FileSlots::drop(VaultClient& vault) {
  for (int slot = 0; slot < 2; ++slot) {
    if (!files_[slot]) continue;
    files_[slot]->invalidate();
    (void)vault.drop(id_of(place_.rank, slot));  // local rank 0 may have deleted stale files before it was created
  }
}

}  // namespace cohort::vault
