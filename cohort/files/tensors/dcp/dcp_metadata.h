/// The file `.metadata` of a folder of torch.distributed.checkpoint: the tensors, their chunks, and the record of each chunk.
/// Pure: parses bytes to a checked table, and formats it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/dcp/stored_checkpoint.h"
#include "cohort/files/tensors/elements/dtype.h"

namespace cohort::files {

/// A range of a file that is itself a file of torch.save.
struct DcpRecord {
  /// The file's name in the folder.
  std::string file;
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
};

struct DcpChunk {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
  DcpRecord record;
};

struct DcpTensor {
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  std::vector<DcpChunk> chunks;
};

struct DcpMetadata {
  std::map<std::string, DcpTensor> tensors;
  /// Values by key; each record is torch.save's output for the value.
  std::map<std::string, DcpRecord> values;
  /// The position of each key in the nested state dict.
  std::map<std::string, std::vector<PathPart>> paths;
};

/// Parses the metadata and runs no code of the pickle. Checks that names of files stay in the folder, and that chunks have
/// records and cover their tensor.
base::Result<DcpMetadata> parse_dcp_metadata(std::string_view pickle);
/// Formats the metadata as torch.distributed.checkpoint.FileSystemWriter does, version 1.0.0.
base::Result<std::string> format_dcp_metadata(const DcpMetadata& metadata);

}  // namespace cohort::files
