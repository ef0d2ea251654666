/// Reads the storages of a .pt file into memory, in parallel.
#pragma once

#include <span>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/pt/pt_file.h"

namespace cohort::files {

struct PtReadOptions {
  int num_threads = 2;
  /// Compares the bytes with the checksums that the file has for them. Files of torch.serialization.set_crc32_options(False)
  /// have wrong ones.
  bool check = false;
};

/// A storage, and where its bytes go: as many as it has.
struct PtDestination {
  const PtStorage* storage;
  std::span<char> to;
};

/// In this machine's byte order; bool elements are 0 or 1 whatever the file holds.
base::Result<void> read_pt_storages(const RandomAccessFile& file, const PtFile& description,
                                    const std::vector<PtDestination>& destinations, const PtReadOptions& options);

/// What a storage's bytes need after they were read or mapped: read_pt_storages does it.
void finish_pt_bytes(const PtFile& description, const PtStorage& storage, std::span<char> bytes);

}  // namespace cohort::files
