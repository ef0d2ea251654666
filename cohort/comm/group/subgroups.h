/// Groups of some of the job's ranks. Names, arguments, defaults and errors as in torch/distributed/distributed_c10d.py.
///
/// Collective: unless said otherwise every rank of the default group must make the same calls in the same order, members or
/// not. Ranks outside a group get an object for which is_member() is false: get_rank and get_world_size give -1 for it, and
/// collectives on it warn and do nothing.
/// Throws: c10::ValueError for arguments that cannot work; c10::DistBackendError when members do not come in time.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort {

struct NewGroupOptions {
  /// Empty: the default group's backend.
  std::string backend = {};
  /// Default: 30 minutes, 10 for NCCL, as in PyTorch (not the default group's).
  std::optional<std::chrono::milliseconds> timeout = {};
  /// What errors and logs call the group; empty: its name.
  std::string group_desc = {};
  /// Only the members call; the group's name is then made from its ranks.
  bool use_local_synchronization = false;
  /// False: group ranks follow the order of `ranks`.
  bool sort_ranks = true;
};

/// A group of `ranks` (default-group ranks; empty: all of them).
/// Throws c10::ValueError for duplicate or out-of-range ranks.
COHORT_API Group new_group(std::vector<int> ranks = {}, const NewGroupOptions& options = {});

/// This rank's group, and all groups made, in order.
using Subgroups = std::pair<Group, std::vector<Group>>;

/// Cuts `group` (null: all ranks) into groups of `group_size` neighbours; 0: as many as the machine has CUDA devices.
/// Throws c10::ValueError unless `group_size` divides the group.
COHORT_API Subgroups new_subgroups(int group_size = 0, const Group& group = {}, const NewGroupOptions& options = {});

/// One group per list. This rank's is the non-member object if it is in none.
/// Throws c10::ValueError when the lists overlap.
COHORT_API Subgroups new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_subgroup_list,
                                                  const NewGroupOptions& options = {});

struct SplitGroupOptions {
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string group_desc = {};
  /// A part of the parent's backends, such as "cpu:gloo"; empty: all of them.
  std::string backend = {};
};

/// Cuts `parent` (null: the default group) along `split_ranks`, lists of ranks *in the parent*; called by every rank of it.
/// Returns: this rank's part, or null, as in PyTorch, if it is in none.
/// Throws c10::ValueError for empty or duplicate lists. CUDA groups need InitOptions::device_id (c10::Error).
COHORT_API Group split_group(const Group& parent, const std::vector<std::vector<int>>& split_ranks,
                             const SplitGroupOptions& options = {});

}  // namespace cohort
