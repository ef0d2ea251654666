/// model.safetensors.index.json: which tensor is in which file of a folder, as Hugging Face's libraries write and read it, and
/// what a sharded checkpoint of ours has besides: checksums and values that are no tensors (docs/checkpoint_format.md).
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

/// What one rank wrote of a tensor: the checksum of the region's elements, row by row.
struct CheckedPiece {
  Region region;
  uint32_t crc32 = 0;
};

struct IndexedFile {
  /// In the folder of the index.
  std::string name;
  /// Of the whole file, and of its header with the length before it. Known of files that we wrote.
  uint64_t num_bytes = 0;
  uint32_t header_crc32 = 0;
};

struct CheckpointIndex {
  std::vector<IndexedFile> files;
  /// Name of a tensor -> index of its file.
  std::map<std::string, size_t> file_of;
  /// Of all tensors, in bytes.
  uint64_t total_size = 0;

  /// False: written by others, and nothing is known of what follows.
  bool is_ours = false;
  std::map<std::string, std::vector<CheckedPiece>> pieces;
  /// Tensors of complex128, for which safetensors has no name: they lie in their files as float64, with another, last dimension
  /// of 2.
  std::set<std::string> complex128;
  /// Values that are no tensors (plain_json.h).
  std::map<std::string, Json> values;
  /// Texts of the user.
  std::map<std::string, std::string> metadata;
};

/// Fails for names that are not UTF-8.
base::Result<std::string> format_checkpoint_index(const CheckpointIndex& index);
/// Checks what can be checked without the files; names of files cannot leave the folder.
base::Result<CheckpointIndex> parse_checkpoint_index(std::string_view text);

/// Why `name` cannot be that of a file in a folder; empty if it can.
std::string file_name_problem(const std::string& name);

}  // namespace cohort::files
