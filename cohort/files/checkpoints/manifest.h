/// The manifest of a checkpoint: what `manifest.json` in its folder says about the other files, written last. Pure: text to a
/// checked value, and back.
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
/// A longer one is refused.
inline constexpr size_t kMaxManifestBytes = size_t{64} << 20;

struct ManifestFile {
  /// Below the checkpoint's folder, with slashes; never "..", never absolute.
  std::string name;
  /// In bytes.
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
/// Fails, saying what is wrong, for anything that format_manifest() does not write: also when a digit or letter of it was
/// changed, since it holds a checksum of itself.
base::Result<Manifest> parse_manifest(std::string_view text);

}  // namespace cohort::files
