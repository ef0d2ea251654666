/// Groups of some of the job's ranks. Names, arguments, defaults and errors follow torch/distributed/distributed_c10d.py.
///
/// Collective: unless said otherwise, every rank of the default group must make the same calls in the same order, members or
/// not. Ranks outside of a group get an object for which is_member() is false: get_rank and get_world_size return -1 for it, and
/// collectives on it warn and do nothing.
/// Throws: c10::ValueError for arguments that cannot work; c10::DistBackendError if members do not come in time.
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
  /// If empty, the default group's backend.
  std::string backend = {};
  /// If absent, 30 minutes, or 10 for NCCL, as in PyTorch (not the default group's timeout).
  std::optional<std::chrono::milliseconds> timeout = {};
  /// The group's name in errors and logs. If empty, c10d's name of it, such as "1".
  std::string group_desc = {};
  /// If true, only the members call; the group's name is then made from its ranks.
  bool use_local_synchronization = false;
  /// If false, group ranks follow the order of `ranks`.
  bool sort_ranks = true;
};

/// Creates a group of `ranks` (default-group ranks; if empty, all).
/// Throws c10::ValueError for duplicate or out-of-range ranks.
COHORT_API Group new_group(std::vector<int> ranks = {}, const NewGroupOptions& options = {});

/// This rank's group, and all groups, in order.
using Subgroups = std::pair<Group, std::vector<Group>>;

/// Cuts `group` (null: all ranks) into groups of `group_size` neighbors (if absent, as many as the machine has CUDA
/// devices).
/// Throws c10::ValueError unless `group_size` divides the group.
COHORT_API Subgroups new_subgroups(std::optional<int> group_size = {}, const Group& group = {},
                                   const NewGroupOptions& options = {});

/// Creates one group per list. A rank that is in no list gets the non-member object.
/// Throws c10::ValueError if the lists overlap.
COHORT_API Subgroups new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_subgroup_list,
                                                  const NewGroupOptions& options = {});

struct SplitGroupOptions {
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string group_desc = {};
  /// Some of the parent's backends, such as "cpu:gloo". If empty, all of them.
  std::string backend = {};
};

/// Splits `parent` (if null, the default group) into `split_ranks`, lists of ranks *in the parent*. Every rank of it calls.
/// Returns: this rank's new group, or null, as in PyTorch, if it is in no list.
/// Throws c10::ValueError for empty or duplicate lists. CUDA groups need InitOptions::device_id (c10::Error).
COHORT_API Group split_group(const Group& parent, const std::vector<std::vector<int>>& split_ranks,
                             const SplitGroupOptions& options = {});

}  // namespace cohort
