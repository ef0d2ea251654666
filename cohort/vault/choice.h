/// Which generation all ranks go on from, and where each finds it: the same on every rank, from the same lists. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/vault/generation_file.h"

namespace cohort::vault {

/// A committed generation in a node's vault.
struct Held {
  int node = 0;
  std::string id;
  /// A copy of another node's, without what all ranks have alike.
  bool is_copy = false;
  /// Of the file.
  uint64_t size = 0;
  Generation generation;
};

struct Choice {
  int64_t step = 0;
  /// Of the run that made it.
  int world_size = 0;
};
/// The newest that every rank of its run has finished, in a place that can be reached. With another number of ranks only one that
/// suits it. Nothing: `why_not` says why, or stays empty if there are no generations at all.
std::optional<Choice> choose(const std::vector<Held>& all, int world_size, std::string* why_not);

/// Where `rank` (of a run with `choice`'s number of ranks) has its own, nearest to `node`: in its own vault, then what its rank
/// has left elsewhere, then copies.
const Held* find_own(const std::vector<Held>& all, const Choice& choice, int rank, int node);
/// The shares of all that ranks have alike, of one node's ranks, nearest to `node`. Empty: nowhere complete.
std::vector<const Held*> find_shared(const std::vector<Held>& all, const Choice& choice, int node);

/// One line per generation, and back. Error: another text.
std::string list_in_text(const std::vector<Held>& held);
base::Result<std::vector<Held>> parse_list(const std::string& text, int node);

/// The id of a rank's file, of two by turns; that of a copy.
std::string id_of(int rank, int slot);
std::string copy_id(int rank, int slot);
bool is_copy_id(const std::string& id);

}  // namespace cohort::vault
