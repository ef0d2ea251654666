/// Reads the storages of a .pt file into memory, in parallel.
#pragma once

#include <span>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/pt/pt_file.h"

namespace cohort::files {

struct PtReadOptions {
  int num_threads = 2;
  /// Whether to compare the bytes with the file's checksums. Files saved with torch.serialization.set_crc32_options(False) have
  /// wrong ones.
  bool check = false;
};

/// A storage, and the memory for its bytes, which must have the storage's size.
struct PtDestination {
  const PtStorage* storage;
  std::span<char> to;
};

/// Reads storages in this machine's byte order. bool elements are 0 or 1, whatever the file has.
base::Result<void> read_pt_storages(const RandomAccessFile& file, const PtFile& description,
                                    const std::vector<PtDestination>& destinations, const PtReadOptions& options);

/// Does what a storage's bytes need after they were mapped. read_pt_storages already does it.
void finish_pt_bytes(const PtFile& description, const PtStorage& storage, std::span<char> bytes);

}  // namespace cohort::files
