/// StoredCheckpoint: where the bytes of every tensor of a checkpoint lie, whatever wrote it: a folder of ours or of Hugging
/// Face's libraries (checkpoint_index.h), a safetensors file, a folder of torch.distributed.checkpoint (dcp_folder.h), a file
/// of torch.save. CheckpointReader copies parts out of it, and no more bytes than those.
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

/// Where a safetensors file has values that are no tensors: the key in its metadata (consolidate()).
inline constexpr const char* kValuesMetadata = "cohort.values";

/// A part of a tensor that lies in one file, row by row.
struct StoredChunk {
  Region region;
  /// Index in StoredCheckpoint::files.
  size_t file = 0;
  /// Of the first element, in bytes from the start of the file.
  uint64_t offset = 0;
  /// Not 0: at `offset` lie so many bytes that are a file of torch.save, and the tensor is its value.
  uint64_t record_bytes = 0;
  /// Set: at `offset` lies a storage of torch.save, and the elements are this view of it.
  std::shared_ptr<const PtTensor> view = {};
};

struct StoredTensor {
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  /// Together the whole tensor, each element once.
  std::vector<StoredChunk> chunks;
  /// What is known to check it by; empty: nothing.
  std::vector<CheckedPiece> pieces;
};

/// A key of a dict or an index of a list.
using PathPart = std::variant<std::string, int64_t>;

struct StoredCheckpoint {
  /// The folder, or the file.
  std::string path;
  /// Paths.
  std::vector<std::string> files;
  std::map<std::string, StoredTensor> tensors;
  /// Values that are no tensors (plain_json.h).
  std::map<std::string, Json> values;
  /// Values that cannot be read, and why.
  std::map<std::string, std::string> unreadable;
  /// Where each key stood in nested dicts and lists, if that is known.
  std::map<std::string, std::vector<PathPart>> paths;
  std::map<std::string, std::string> metadata;
  /// Of each file, if it is ours: its size and the checksum of its header.
  std::vector<IndexedFile> indexed;

  uint64_t num_bytes() const;
};

/// Reads the index and every header, and no data. Errors say what is at `path` instead: nothing, an unfinished checkpoint, files
/// that do not fit the index.
base::Result<StoredCheckpoint> open_stored_checkpoint(const std::string& path);

/// Thread-safety: one thread at a time.
class CheckpointReader {
 public:
  explicit CheckpointReader(const StoredCheckpoint& checkpoint) : checkpoint_(checkpoint) {}

  /// Copies `region` of a tensor to `to`, row by row. `verify`: pieces that lie in the region as a whole are compared with their
  /// checksums. Requires: the region lies in the tensor.
  base::Result<void> read(const std::string& name, const Region& region, char* to, bool verify);
  /// Of data, since the reader was made.
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  base::Result<const RandomAccessFile*> file(size_t index);
  /// The chunk's elements, where they lie in its file.
  base::Result<StoredChunk> resolve(const StoredTensor& tensor, const StoredChunk& chunk, const RandomAccessFile& file);
  /// `crc`: if set, goes on with the bytes in the order in which they are read.
  base::Result<void> read_chunk(const StoredTensor& tensor, const StoredChunk& chunk, const Region& region, char* to,
                                uint32_t* crc);

  const StoredCheckpoint& checkpoint_;
  std::map<size_t, RandomAccessFile> open_files_;
  /// Records that were looked into, by file and offset.
  std::map<std::pair<size_t, uint64_t>, StoredChunk> resolved_;
  uint64_t bytes_read_ = 0;
};

base::Error damaged_piece(const std::string& name, const CheckedPiece& piece);

struct VerifyReport {
  uint64_t num_tensors = 0;
  uint64_t num_values = 0;
  uint64_t num_bytes = 0;
  /// Of these, those compared with a checksum.
  uint64_t num_checked_bytes = 0;
};
/// Compares everything with its checksums and reads what has none. The error is the first damage. Needs little memory.
base::Result<VerifyReport> verify_sharded(const std::string& path);

}  // namespace cohort::files
