/// The header of a safetensors file: JSON text to a checked table of tensors, and back. Pure: no files, no tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/elements/dtype.h"

namespace cohort::files {

/// Longer headers are refused, as by Python's package.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  /// Place of the data, counted from the end of the header.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  /// In the order of the JSON text.
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// The JSON text, padded with spaces so that the data behind it begin at a multiple of 64 bytes of the file.
/// Fails for names that are not UTF-8 or are `__metadata__`, for dtypes that the format has no name for, and for headers longer
/// than kMaxSafetensorsHeaderBytes.
base::Result<std::string> format_safetensors_header(const SafetensorsHeader& header);

/// Parses and checks: `num_data_bytes` is what the file holds after the header.
base::Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t num_data_bytes);

/// Bytes of the elements; nothing where that is more than an int64_t holds.
std::optional<uint64_t> tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape);

/// Gives the entries their places: one after the other, whole lines of the cache first, then wide elements, so that each is
/// aligned for readers that map the file. Returns: the entries' indices in that order. Requires: sizes that do not overflow.
std::vector<size_t> place_entries(std::vector<SafetensorsEntry>& entries);

}  // namespace cohort::files
