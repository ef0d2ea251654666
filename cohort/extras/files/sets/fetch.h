/// Gets a data set from where it is published: downloaded, compared with its published digest, unpacked.
///
/// A file or folder of a set is at its final name whole, or not at all. Several processes may ask for one set at once (the
/// ranks of a host): one downloads, the others wait and find it there.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/sets/official_sets.h"

namespace cohort::files {

struct FetchOptions {
  /// "http://host:port": there instead of the hosts of the catalogue, under the same paths.
  std::string mirror;
  std::chrono::seconds connect_timeout{30};
  std::chrono::seconds stall_timeout{60};
  /// How long to wait for another process that fetches the same set.
  std::chrono::seconds lock_timeout{3600};
  /// Called about once a second or oftener while a file is downloaded; `total` 0: not known. False stops the download.
  std::function<bool(const SetFile& file, uint64_t done, uint64_t total)> on_progress;
};

/// Returns the number of files that were downloaded: 0 if all were there. An interrupted download goes on where it was the next
/// time. Errors say what could not be reached or what is wrong, and what to do where there is no network.
base::Result<int> fetch(const OfficialSet& set, const std::string& root, const FetchOptions& options = {});

/// Fails for names that are not in the catalogue, and then names those that are.
base::Result<int> fetch(const std::string& name, const std::string& root, const FetchOptions& options = {});

}  // namespace cohort::files
