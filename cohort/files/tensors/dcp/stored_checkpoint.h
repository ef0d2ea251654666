/// StoredCheckpoint: the places of the bytes of every tensor of a checkpoint, in any format: a folder of Cohort or of Hugging
/// Face's libraries (checkpoint_index.h), a safetensors file, a folder of torch.distributed.checkpoint (dcp_folder.h), a file of
/// torch.save. CheckpointReader copies parts of tensors and reads no other bytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/input/random_access_file.h"
#include "cohort/files/tensors/elements/dtype.h"
#include "cohort/files/tensors/elements/region.h"
#include "cohort/files/tensors/plan/checkpoint_index.h"
#include "cohort/files/tensors/pt/pt_file.h"

namespace cohort::files {

/// The key in a safetensors file's metadata for values that are not tensors (consolidate()).
inline constexpr const char* kValuesMetadata = "cohort.values";

/// A part of a tensor that is stored in one file, row by row.
struct StoredChunk {
  Region region;
  /// The index in StoredCheckpoint::files.
  size_t file = 0;
  /// The place of the first element, in bytes from the start of the file.
  uint64_t offset = 0;
  /// If not 0, a file of torch.save with this many bytes is at `offset`, and the tensor is its value.
  uint64_t record_bytes = 0;
  /// If set, a storage of torch.save is at `offset`, and the elements are this view of it.
  std::shared_ptr<const PtTensor> view = {};
};

struct StoredTensor {
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  /// The chunks, which together have each element of the tensor once.
  std::vector<StoredChunk> chunks;
  /// Checksums of parts of the tensor. Empty if none are known.
  std::vector<CheckedPiece> pieces;
};

/// A key of a dict or an index of a list.
using PathPart = std::variant<std::string, int64_t>;

struct StoredCheckpoint {
  /// The path of the folder or file.
  std::string path;
  /// The paths of the files.
  std::vector<std::string> files;
  std::map<std::string, StoredTensor> tensors;
  /// Values that are not tensors (plain_json.h).
  std::map<std::string, Json> values;
  /// Values that cannot be read, and the reasons.
  std::map<std::string, std::string> unreadable;
  /// The position of each key in nested dicts and lists, if it is known.
  std::map<std::string, std::vector<PathPart>> paths;
  std::map<std::string, std::string> metadata;
  /// The size and header checksum of each file, if Cohort wrote it.
  std::vector<IndexedFile> indexed;

  uint64_t num_bytes() const;
};

/// Reads the index and every header, but no data. Errors say what is at `path` instead: nothing, an unfinished checkpoint, files
/// that do not match the index.
base::Result<StoredCheckpoint> open_stored_checkpoint(const std::string& path);

/// Thread-safety: one thread at a time.
class CheckpointReader {
 public:
  explicit CheckpointReader(const StoredCheckpoint& checkpoint) : checkpoint_(checkpoint) {}

  /// Copies `region` of a tensor to `to`, row by row. With `verify`, compares pieces that are completely in the region with their
  /// checksums. Requires that the region is inside the tensor.
  base::Result<void> read(const std::string& name, const Region& region, char* to, bool verify);
  /// The number of data bytes read so far.
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  base::Result<const RandomAccessFile*> file(size_t index);
  /// Finds the place of the chunk's elements in its file.
  base::Result<StoredChunk> resolve(const StoredTensor& tensor, const StoredChunk& chunk, const RandomAccessFile& file);
  /// Reads the chunk's part of `region`. If `crc` is set, updates it with the bytes in the order in which they are read.
  base::Result<void> read_chunk(const StoredTensor& tensor, const StoredChunk& chunk, const Region& region, char* to,
                                uint32_t* crc);

  const StoredCheckpoint& checkpoint_;
  std::map<size_t, RandomAccessFile> open_files_;
  /// Records that were opened, by file and offset.
  std::map<std::pair<size_t, uint64_t>, StoredChunk> resolved_;
  uint64_t bytes_read_ = 0;
};

base::Error damaged_piece(const std::string& name, const CheckedPiece& piece);

struct VerifyReport {
  uint64_t num_tensors = 0;
  uint64_t num_values = 0;
  uint64_t num_bytes = 0;
  /// The part of these bytes that was compared with a checksum.
  uint64_t num_checked_bytes = 0;
};
/// Compares everything with its checksums, and reads what has no checksum. The error describes the first damage. Needs little
/// memory.
base::Result<VerifyReport> verify_sharded(const std::string& path);

}  // namespace cohort::files
