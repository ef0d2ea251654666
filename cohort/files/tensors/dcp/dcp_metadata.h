/// The file `.metadata` of a folder of torch.distributed.checkpoint: which tensors there are, the chunks that they were cut into,
/// and the record in which each lies. Pure: bytes to a checked table and back.
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

/// Bytes of a file that are a file of torch.save themselves.
struct DcpRecord {
  /// In the folder.
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
  /// Each is what torch.save makes of a value.
  std::map<std::string, DcpRecord> values;
  /// Where each key stood in the nested state dict.
  std::map<std::string, std::vector<PathPart>> paths;
};

/// Nothing of the pickle is run. Checked: names of files stay in the folder, chunks have records and are the whole of their
/// tensor.
base::Result<DcpMetadata> parse_dcp_metadata(std::string_view pickle);
/// As torch.distributed.checkpoint.FileSystemWriter writes it, version 1.0.0.
base::Result<std::string> format_dcp_metadata(const DcpMetadata& metadata);

}  // namespace cohort::files
