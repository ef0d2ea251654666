/// The header of a safetensors file: parses JSON text to a checked table of tensors, and formats it. Pure: no files, no tensors.
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

/// The limit for headers, as in Python's package.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  /// The place of the data, counted from the end of the header.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  /// The entries in the order of the JSON text.
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Formats the JSON text, padded with spaces so that the data behind it begin at a multiple of 64 bytes of the file. Fails for
/// names that are not UTF-8 or are `__metadata__`, for dtypes that the format has no name for, and for headers longer than
/// kMaxSafetensorsHeaderBytes.
base::Result<std::string> format_safetensors_header(const SafetensorsHeader& header);

/// Parses and checks the header. `num_data_bytes` is the size of the file after the header.
base::Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t num_data_bytes);

/// Returns the size of the elements in bytes; nothing if it does not fit int64_t.
std::optional<uint64_t> tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape);

/// Sets the places of the entries, one after the other: first those that fill complete cache lines, then those with wide
/// elements, so that each is aligned for readers that map the file. Returns the entries' indices in that order. Requires sizes
/// that do not overflow.
std::vector<size_t> place_entries(std::vector<SafetensorsEntry>& entries);

}  // namespace cohort::files
