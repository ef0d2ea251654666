/// model.safetensors.index.json: the file of each tensor in a folder, as Hugging Face's libraries write and read it, and what
/// Cohort adds for its sharded checkpoints: checksums and values that are not tensors (docs/checkpoint_format.md).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/elements/json_fwd.h"
#include "cohort/files/tensors/elements/region.h"

namespace cohort::files {

inline constexpr const char* kCheckpointIndexName = "model.safetensors.index.json";
inline constexpr uint64_t kMaxCheckpointIndexBytes = uint64_t{512} << 20;

/// The part of a tensor that one rank wrote: the checksum of the region's elements, row by row.
struct CheckedPiece {
  Region region;
  uint32_t crc32 = 0;
};

struct IndexedFile {
  /// The name in the folder of the index.
  std::string name;
  /// The size of the complete file, and the checksum of its header with the length before it. Only known for files that Cohort
  /// wrote.
  uint64_t num_bytes = 0;
  uint32_t header_crc32 = 0;
};

struct CheckpointIndex {
  std::vector<IndexedFile> files;
  /// The index of the file of each tensor.
  std::map<std::string, size_t> file_of;
  /// The size of all tensors in bytes.
  uint64_t total_size = 0;

  /// Whether Cohort wrote the checkpoint. If not, nothing of the members below is known.
  bool is_ours = false;
  std::map<std::string, std::vector<CheckedPiece>> pieces;
  /// Tensors of complex128, for which safetensors has no name. Files store them as float64, with an additional last dimension of
  /// 2.
  std::set<std::string> complex128;
  /// Values that are not tensors (plain_json.h).
  std::map<std::string, Json> values;
  /// Texts of the user.
  std::map<std::string, std::string> metadata;
};

/// Formats the index. Fails for names that are not UTF-8.
base::Result<std::string> format_checkpoint_index(const CheckpointIndex& index);
/// Parses the index and checks all that can be checked without the files. Names of files cannot leave the folder.
base::Result<CheckpointIndex> parse_checkpoint_index(std::string_view text);

/// Returns why `name` cannot be the name of a file in a folder; empty if it can.
std::string file_name_problem(const std::string& name);

}  // namespace cohort::files
