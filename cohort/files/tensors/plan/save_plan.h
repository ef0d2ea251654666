/// Who writes what, and where, when ranks save one checkpoint together. Pure and deterministic: the same items give the same
/// plan.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/elements/dtype.h"
#include "cohort/files/tensors/elements/region.h"
#include "cohort/files/tensors/plan/checkpoint_index.h"

namespace cohort::files {

/// Files that are not complete yet: the name that they will have, and this.
inline constexpr const char* kUnfinishedSuffix = ".unfinished";

/// What one rank has of one key.
struct SaveItem {
  std::string key;
  /// False: `value` is all there is.
  bool is_tensor = true;
  Dtype dtype = Dtype::kFloat32;
  /// Of the whole tensor.
  std::vector<int64_t> shape = {};
  /// What this rank has of it.
  Region region = {};
  /// plain_json.h.
  Json value = {};
};

struct PlannedWrite {
  /// Index in the rank's items.
  size_t item = 0;
  /// Index in SavePlan::files.
  size_t file = 0;
  /// Of the tensor's first element, in bytes from the start of the file.
  uint64_t offset = 0;
};

struct PlannedFile {
  std::string name;
  /// What stands before the data.
  std::string prefix;
  uint64_t num_bytes = 0;
};

struct SavePlan {
  std::vector<PlannedFile> files;
  /// By rank. Pieces that several ranks have are written by one of them.
  std::vector<std::vector<PlannedWrite>> writes;
  /// Complete but for the checksums: `pieces` is empty, add_checksums() makes it.
  CheckpointIndex index;
};

struct SavePlanOptions {
  /// Of tensors, in one file; a larger tensor has a file of its own.
  uint64_t max_file_bytes = 5'000'000'000;
  /// At least so many files, as far as there are tensors. 0: one per rank, if each gets a MiB.
  size_t num_files = 0;
  /// `<prefix>-00001-of-00002.safetensors`
  std::string prefix = "model";
};

/// Pieces that several ranks have go to the one with the fewest bytes to write, large ones first. A tensor that one rank writes
/// lies in that rank's file, so that ranks seldom wait for each other; others where there is most room.
/// Errors: a key that is not the same tensor on all ranks that have it; pieces that overlap, or leave elements out.
base::Result<SavePlan> plan_save(const std::vector<std::vector<SaveItem>>& items_by_rank,
                                 const SavePlanOptions& options = {});

/// `checksums`: by rank, one for each of its writes.
base::Result<void> add_checksums(const std::vector<std::vector<SaveItem>>& items_by_rank,
                                 const std::vector<std::vector<uint32_t>>& checksums, SavePlan& plan);

/// What ranks send each other.
base::Result<std::string> format_items(const std::vector<SaveItem>& items);
base::Result<std::vector<SaveItem>> parse_items(std::string_view text);
/// The files, and one rank's writes.
std::string format_writes(const SavePlan& plan, size_t rank);
base::Result<SavePlan> parse_writes(std::string_view text);

}  // namespace cohort::files
