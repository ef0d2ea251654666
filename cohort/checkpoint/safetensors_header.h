/// The header of a safetensors file: JSON text to a checked table of tensors, and back. Pure: no files, no tensors.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/result.h"
#include "cohort/export.h"

namespace cohort::checkpoint {

/// Longer headers are refused, as by Python's package.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct TensorEntry {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<int64_t> shape;
  /// Place of the data, counted from the end of the header.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  /// In the order of the JSON text.
  std::vector<TensorEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// "F32" for kFloat and so on; nothing for a dtype the format has no name for.
COHORT_TEST_API std::optional<std::string_view> dtype_name(c10::ScalarType dtype);

/// The JSON text, padded with spaces to a multiple of 8 bytes.
/// Fails for names that are not UTF-8 or are `__metadata__`, and for headers longer than kMaxHeaderBytes.
COHORT_TEST_API base::Result<std::string> format_header(const SafetensorsHeader& header);

/// Parses and checks: `num_data_bytes` is what the file holds after the header.
COHORT_TEST_API base::Result<SafetensorsHeader> parse_header(std::string_view json, uint64_t num_data_bytes);

}  // namespace cohort::checkpoint
