/// The files of a checkpoint while ranks write them. One rank, the coordinator, makes them (ShardFiles) under temporary names;
/// each rank writes its pieces where they belong (PieceWriter); then the coordinator gives them their names, and the index
/// appears last. A folder that had a checkpoint keeps it, whole, until that moment, for the new files have other names.
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
  /// `file_names` without kUnfinishedSuffix. `sync`: finish() waits for the disk.
  PieceWriter(std::string folder, std::vector<std::string> file_names, bool sync);

  /// Writes what `data` holds, `region` of a tensor row by row, to its place in the tensor of `shape`, whose first element lies
  /// at `offset`. Returns: the checksum of the data.
  base::Result<uint32_t> write(const PlannedWrite& place, const SaveItem& item, const char* data);
  /// After the last write.
  base::Result<void> finish();

 private:
  base::Result<int> open(size_t file);

  std::string folder_;
  std::vector<std::string> names_;
  base::Sync sync_;
  std::map<size_t, base::Fd> open_files_;
};

/// What the coordinator does. The destructor removes all files that it made, unless commit() succeeded.
class ShardFiles {
 public:
  /// `sync`: nothing is committed before it is on the disk.
  ShardFiles(std::string folder, bool sync) : folder_(std::move(folder)), sync_(sync) {}
  ShardFiles(const ShardFiles&) = delete;
  ShardFiles& operator=(const ShardFiles&) = delete;
  ~ShardFiles();

  /// Makes the folder if need be, and removes what interrupted saves have left in it.
  /// Fails, unless `overwrite`, where it holds a checkpoint.
  base::Result<void> prepare(bool overwrite);
  /// A prefix for names of files that are not in the folder: "model", or "model_2" and so on.
  std::string free_prefix() const;
  /// Makes the files with their headers, and takes room for the data on the disk.
  base::Result<void> create(const SavePlan& plan);
  /// Names the files, writes the index, and removes the files of the checkpoint that it replaces.
  base::Result<void> commit(const SavePlan& plan);

 private:
  std::string folder_;
  bool sync_;
  /// What to remove.
  std::vector<std::string> made_;
};

}  // namespace cohort::files
