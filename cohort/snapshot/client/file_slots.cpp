#include "cohort/snapshot/client/file_slots.h"

#include <utility>

#include "cohort/snapshot/choice.h"

namespace cohort::snapshot {

using base::Error;
using base::Result;

void FileSlots::adopt(int slot, const VersionFile& file, bool is_complete) {
  files_[slot] = file;
  if (is_complete) complete_ = slot;
}

Result<void> FileSlots::reserve(ServerConnection& server, uint64_t num_bytes) {
  auto& next = files_[next_slot()];
  if (next && next->size() >= num_bytes) return {};
  next.reset();
  base::Fd fd;
  Result<VersionFile> file = VersionFile::create(num_bytes + kSpareBytes, &fd);
  if (!file) return file.error();
  if (Result<void> put = server.put(id_of(place_.rank, next_slot()), fd); !put) return put;
  next = std::move(*file);
  return {};
}

void FileSlots::drop(ServerConnection& server) {
  for (int slot = 0; slot < 2; ++slot) {
    if (!files_[slot]) continue;
    files_[slot]->invalidate();
    (void)server.drop(id_of(place_.rank, slot));  // local rank 0 may have deleted stale files before it was created
  }
}

}  // namespace cohort::snapshot
