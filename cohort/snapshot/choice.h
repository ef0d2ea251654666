/// Chooses the snapshot version from which all ranks go on, and where each rank finds it. The same on every rank, from the same
/// lists. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/snapshot/version_file.h"

namespace cohort::snapshot {

/// A committed version on a node's snapshot server.
struct StoredVersion {
  int node = 0;
  std::string id;
  /// Whether it is a copy from another node, without the replicated bytes.
  bool is_copy = false;
  /// The size of the file.
  uint64_t size = 0;
  Version version;
};

struct Choice {
  int64_t step = 0;
  /// The number of ranks of the run that wrote it.
  int world_size = 0;
};
/// Returns the newest version that every rank of its run has finished and that is in places that can be reached. If the number of
/// ranks differs, the version must suit that. If nothing is found, `why_not` says why, or stays empty if there are no versions.
std::optional<Choice> choose(const std::vector<StoredVersion>& all, int world_size, std::string* why_not);

/// Returns the file of `rank` (of a run with `choice`'s number of ranks) that is nearest to `node`: on its own server, then files
/// of the rank on other nodes, then copies.
const StoredVersion* find_own(const std::vector<StoredVersion>& all, const Choice& choice, int rank, int node);
/// Returns the parts of the replicated bytes from the ranks of one node, nearest to `node`. Empty if no node has all parts.
std::vector<const StoredVersion*> find_shared(const std::vector<StoredVersion>& all, const Choice& choice, int node);

/// Converts versions to one line each, and back. Returns an error for any other text.
std::string list_in_text(const std::vector<StoredVersion>& held);
base::Result<std::vector<StoredVersion>> parse_list(const std::string& text, int node);

/// Returns the id of one of a rank's two files, or of a copy.
std::string id_of(int rank, int slot);
std::string copy_id(int rank, int slot);
bool is_copy_id(const std::string& id);

}  // namespace cohort::snapshot
