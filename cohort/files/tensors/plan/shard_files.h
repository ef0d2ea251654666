/// The files of a checkpoint while ranks write them. One rank, the coordinator, creates them (ShardFiles) under temporary names.
/// Each rank writes its pieces to their places (PieceWriter). Then the coordinator renames the files and writes the index last. A
/// folder that had a checkpoint keeps it until that moment, because the new files have other names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/atomic_file.h"
#include "cohort/base/file/file.h"
#include "cohort/files/tensors/plan/save_plan.h"

namespace cohort::files {

class PieceWriter {
 public:
  /// `file_names` are without kUnfinishedSuffix. With `sync`, finish() waits for the disk.
  PieceWriter(std::string folder, std::vector<std::string> file_names, bool sync);

  /// Writes `data`, a `region` of a tensor row by row, to its place in the tensor of `shape`, whose first element is at `offset`.
  /// Returns the checksum of the data.
  base::Result<uint32_t> write(const PlannedWrite& place, const SaveItem& item, const char* data);
  /// Must be called after the last write.
  base::Result<void> finish();

 private:
  base::Result<int> open(size_t file);

  std::string folder_;
  std::vector<std::string> names_;
  base::Sync sync_;
  std::map<size_t, base::Fd> open_files_;
};

/// The work of the coordinator. The destructor removes all files that it created, unless commit() succeeded.
class ShardFiles {
 public:
  /// With `sync`, nothing is committed before it is on the disk.
  ShardFiles(std::string folder, bool sync) : folder_(std::move(folder)), sync_(sync) {}
  ShardFiles(const ShardFiles&) = delete;
  ShardFiles& operator=(const ShardFiles&) = delete;
  ~ShardFiles();

  /// Creates the folder if needed, and removes the remains of interrupted saves. Fails if it has a checkpoint, unless
  /// `overwrite`.
  base::Result<void> prepare(bool overwrite);
  /// Returns a prefix for names of files that the folder does not have: "model", or "model_2" and so on.
  std::string free_prefix() const;
  /// Creates the files with their headers, and reserves disk space for the data.
  base::Result<void> create(const SavePlan& plan);
  /// Renames the files, writes the index, and removes the files of the checkpoint that it replaces.
  base::Result<void> commit(const SavePlan& plan);

 private:
  std::string folder_;
  bool sync_;
  /// The files to remove.
  std::vector<std::string> made_;
};

}  // namespace cohort::files
