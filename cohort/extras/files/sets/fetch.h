/// Gets a dataset from where it is published: downloads it, compares its published digest, and unpacks it.
///
/// A file or folder of a dataset appears at its final name complete, or not at all. Several processes (the ranks of a host) may
/// fetch one dataset at once: one downloads, and the others wait for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/sets/official_sets.h"

namespace cohort::files {

struct FetchOptions {
  /// "http://host:port": replaces the hosts of the catalog, with the same paths.
  std::string mirror;
  std::chrono::seconds connect_timeout{30};
  std::chrono::seconds stall_timeout{60};
  /// How long to wait for another process that fetches the same dataset.
  std::chrono::seconds lock_timeout{3600};
  /// Called at least about once a second during a download. `total` is 0 if not known. If it returns false, the download stops.
  std::function<bool(const SetFile& file, uint64_t done, uint64_t total)> on_progress;
};

/// Returns the number of downloaded files; 0 if all were there. The next call continues an interrupted download. Errors say what
/// could not be reached or what is wrong, and what to do without a network.
base::Result<int> fetch(const OfficialSet& set, const std::string& root, const FetchOptions& options = {});

/// Fails for names that are not in the catalog, and lists those that are.
base::Result<int> fetch(const std::string& name, const std::string& root, const FetchOptions& options = {});

}  // namespace cohort::files
