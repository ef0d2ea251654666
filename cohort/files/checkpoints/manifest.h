/// The manifest of a checkpoint: the description of the other files in `manifest.json`, which is written last. Pure: parses a
/// text to a checked value, and formats it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::files {

inline constexpr const char* kManifestName = "manifest.json";
/// A longer manifest is refused.
inline constexpr size_t kMaxManifestBytes = size_t{64} << 20;

struct ManifestFile {
  /// The path relative to the checkpoint's folder, with slashes; never "..", never absolute.
  std::string name;
  /// The size in bytes.
  uint64_t size = 0;
  uint32_t crc32 = 0;
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  int64_t step = 0;
  /// Seconds since 1970 (UTC).
  int64_t saved_at = 0;
  int64_t num_ranks = 1;
  std::optional<double> metric = {};
  std::map<std::string, std::string> metadata = {};
  std::vector<ManifestFile> files = {};
  bool operator==(const Manifest&) const = default;

  uint64_t num_bytes() const;
};

std::string format_manifest(const Manifest& manifest);
/// Parses a manifest. Fails for anything that format_manifest() does not write, and says what is wrong. A changed digit or letter
/// is also an error, because the manifest has a checksum of itself.
base::Result<Manifest> parse_manifest(std::string_view text);

}  // namespace cohort::files
