/// Plans which rank writes what, and where, when ranks save one checkpoint together. Pure and deterministic: the same items give
/// the same plan.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/elements/dtype.h"
#include "cohort/files/tensors/elements/region.h"
#include "cohort/files/tensors/plan/checkpoint_index.h"

namespace cohort::files {

/// The suffix of the names of incomplete files.
inline constexpr const char* kUnfinishedSuffix = ".unfinished";

/// The part of one key that one rank has.
struct SaveItem {
  std::string key;
  /// Whether it is a tensor. If not, only `value` is used.
  bool is_tensor = true;
  Dtype dtype = Dtype::kFloat32;
  /// The global shape.
  std::vector<int64_t> shape = {};
  /// The part of the tensor that this rank has.
  Region region = {};
  /// The value, in the form of plain_json.h.
  Json value = {};
};

struct PlannedWrite {
  /// The index in the rank's items.
  size_t item = 0;
  /// The index in SavePlan::files.
  size_t file = 0;
  /// The place of the tensor's first element, in bytes from the start of the file.
  uint64_t offset = 0;
};

struct PlannedFile {
  std::string name;
  /// The bytes before the data.
  std::string prefix;
  uint64_t num_bytes = 0;
};

struct SavePlan {
  std::vector<PlannedFile> files;
  /// Writes by rank. If several ranks have a piece, one of them writes it.
  std::vector<std::vector<PlannedWrite>> writes;
  /// Complete except for the checksums: `pieces` is empty until add_checksums() fills it.
  CheckpointIndex index;
};

struct SavePlanOptions {
  /// The limit for tensors in one file. A larger tensor has its own file.
  uint64_t max_file_bytes = 5'000'000'000;
  /// The least number of files, if there are enough tensors. If absent, one per rank, if each gets a MiB.
  std::optional<size_t> num_files = {};
  /// The prefix of `<prefix>-00001-of-00002.safetensors`.
  std::string prefix = "model";
};

/// Makes the plan. A piece that several ranks have is written by the rank with the fewest bytes to write, large pieces first. A
/// tensor that one rank writes is in that rank's file, so that ranks seldom wait for each other; others are in the files with the
/// most space. Errors: a key that is not the same tensor on all ranks that have it; pieces that overlap, or do not cover the
/// tensor.
base::Result<SavePlan> plan_save(const std::vector<std::vector<SaveItem>>& items_by_rank,
                                 const SavePlanOptions& options = {});

/// Adds the checksums: by rank, one for each of its writes.
base::Result<void> add_checksums(const std::vector<std::vector<SaveItem>>& items_by_rank,
                                 const std::vector<std::vector<uint32_t>>& checksums, SavePlan& plan);

/// Formats items as ranks send them to each other.
base::Result<std::string> format_items(const std::vector<SaveItem>& items);
base::Result<std::vector<SaveItem>> parse_items(std::string_view text);
/// Formats the files, and one rank's writes.
std::string format_writes(const SavePlan& plan, size_t rank);
base::Result<SavePlan> parse_writes(std::string_view text);

}  // namespace cohort::files
