#include "cohort/comm/group/subgroups.h"

#include <c10/util/Exception.h>
#include <c10/util/hash.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "cohort/comm/backend/accelerator.h"
#include "cohort/comm/group/group_creation.h"
#include "cohort/comm/group/non_member.h"
#include "cohort/comm/registry/backends.h"
#include "cohort/comm/registry/default_timeout.h"

namespace cohort {
namespace {

using comm::GroupRecord;
using comm::record_of;
using comm::world;

std::string list_text(const std::vector<int>& ranks) { return c10::str("[", c10::Join(", ", ranks), "]"); }

std::vector<int> checked_ranks(std::vector<int> ranks, int world_size, bool sort) {
  if (ranks.empty()) {
    ranks.resize(world_size);
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  if (sort) std::sort(ranks.begin(), ranks.end());
  TORCH_CHECK_VALUE(std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size(),
                    "ranks list must not contain duplicate entries, got ", list_text(ranks));
  TORCH_CHECK_VALUE(static_cast<int>(ranks.size()) <= world_size,
                    "the new group's world size should be less or equal to the world size set by init_process_group");
  for (const int rank : ranks) {
    TORCH_CHECK_VALUE(rank >= 0 && rank < world_size, "Rank ", rank, " is out of range. Valid ranks are 0 to ",
                      world_size - 1, " (world_size=", world_size, ")");
  }
  return ranks;
}

// Hashes the ranks and the number of their groups so far. PyTorch hashes the number of groups that the process is in, which
// differs between members that are in different groups: they would wait for each other for ever.
std::string hashed_name(const std::vector<int>& ranks) {
  return c10::sha1(c10::str(c10::Join("_", ranks), "_", ++world().num_local_groups[ranks])).str();
}

// Returns the group rank of this process, or -1.
int position(const std::vector<int>& ranks) {
  const auto found = std::find(ranks.begin(), ranks.end(), default_group()->getRank());
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

GroupRecord make_record(std::string name, std::vector<int> ranks, std::string backend,
                        std::vector<comm::DeviceBackend> config, std::optional<std::chrono::milliseconds> timeout,
                        const std::string& description) {
  GroupRecord record;
  record.description = description.empty() ? name : description;
  record.name = std::move(name);
  record.ranks = std::move(ranks);
  record.backend = std::move(backend);
  record.timeout = comm::checked_timeout(timeout, config);
  record.config = std::move(config);
  return record;
}

void check_split_lists(const std::vector<std::vector<int>>& split_ranks, int parent_size) {
  TORCH_CHECK_VALUE(!split_ranks.empty(), "split_ranks cannot be None or empty");
  std::map<int, size_t> seen;
  for (size_t i = 0; i < split_ranks.size(); ++i) {
    const auto& list = split_ranks[i];
    TORCH_CHECK_VALUE(!list.empty(), "the split group cannot be empty");
    TORCH_CHECK_VALUE(static_cast<int>(list.size()) <= parent_size,
                      "the split group's size should be less or equal to the world_size set by init_process_group");
    TORCH_CHECK_VALUE(std::set<int>(list.begin(), list.end()).size() == list.size(),
                      "the split group cannot have duplicate ranks");
    for (const int rank : list) {
      TORCH_CHECK_VALUE(rank >= 0 && rank < parent_size, "Group rank ", rank, " is not part of the parent group");
      const bool first = seen.emplace(rank, i).second;
      TORCH_CHECK_VALUE(first, "Group rank ", rank, " has appeared in both ", list_text(split_ranks[seen[rank]]),
                        " and ", list_text(list), " of split_ranks");
    }
  }
}

// Returns the parent's backends, or only those that `wanted` names.
std::vector<comm::DeviceBackend> split_config(const GroupRecord& parent, const std::string& wanted) {
  if (wanted.empty()) return parent.config;
  auto config = comm::backend_config(wanted);
  const bool by_device = wanted.find(':') != std::string::npos;
  std::vector<comm::DeviceBackend> kept;
  for (const auto& entry : config) {
    const auto device = c10::DeviceTypeName(entry.device, /*lower_case=*/true);
    const auto own = std::find_if(parent.config.begin(), parent.config.end(),
                                  [&](const auto& one) { return one.device == entry.device; });
    if (own == parent.config.end() && !by_device) continue;
    TORCH_CHECK_VALUE(own != parent.config.end(), "Requested backend for device '", device,
                      "' is not present in the parent process group (parent backends: ", to_string(parent.config), ")");
    TORCH_CHECK_VALUE(own->backend == entry.backend, "Backend mismatch for device '", device, "': parent has '",
                      own->backend, "', requested '", entry.backend,
                      "'. Backend names must match exactly when filtering split_group backends.");
    kept.push_back(entry);
  }
  TORCH_CHECK_VALUE(!kept.empty(), "backend \"", wanted,
                    "\" is not present in the parent process group (parent backends: ", to_string(parent.config), ")");
  return kept;
}

}  // namespace

Group new_group(std::vector<int> ranks, const NewGroupOptions& options) {
  comm::remove_released();
  const auto parent = default_group();
  const auto& defaults = record_of(parent);
  const bool is_chosen = options.backend.empty() && defaults.is_backend_chosen;
  auto backend = options.backend.empty() && !is_chosen ? defaults.backend : options.backend;
  auto config = comm::backend_config(backend);
  if (is_chosen) backend = config.front().backend;
  const auto listed = std::find(ranks.begin(), ranks.end(), parent->getRank()) != ranks.end();
  if (options.use_local_synchronization && !ranks.empty() && !listed) return comm::non_member();
  ranks = checked_ranks(std::move(ranks), parent->getSize(), options.sort_ranks);
  const auto name = options.use_local_synchronization ? hashed_name(ranks) : std::to_string(world().group_count++);
  const int group_rank = position(ranks);
  const bool local = options.use_local_synchronization;
  const int num_callers = local ? static_cast<int>(ranks.size()) : parent->getSize();
  auto record = make_record(name, std::move(ranks), backend, std::move(config), options.timeout, options.group_desc);
  record.is_backend_chosen = is_chosen;
  const auto timeout = record.timeout;
  const auto store = defaults.store;
  Group group = comm::non_member();
  if (group_rank >= 0) group = comm::create_group(store, std::move(record), group_rank, parent->getBoundDeviceId());
  comm::barrier_after_init(local ? record_of(group).store : store, name, num_callers, timeout);
  return group;
}

namespace {

int num_accelerators() {
  const auto accelerator = comm::accelerator();
  TORCH_CHECK_VALUE(accelerator,
                    "Default group size only takes effect when CUDA is available. If your subgroup uses a backend that "
                    "does not depend on CUDA, please pass in 'group_size' correctly.");
  return accelerator->num_devices;
}

}  // namespace

Subgroups new_subgroups(std::optional<int> wanted_size, const Group& group, const NewGroupOptions& options) {
  const int group_size = wanted_size ? *wanted_size : num_accelerators();
  TORCH_CHECK_VALUE(group_size > 0, "The arg 'group_size' (", group_size, ") must be positive");
  const int world_size = get_world_size(group);
  TORCH_CHECK_VALUE(world_size >= group_size, "The arg 'group_size' (", group_size,
                    ") must not exceed the world size (", world_size, ")");
  TORCH_CHECK_VALUE(world_size % group_size == 0, "The world size (", world_size,
                    ") must be divisible by 'group_size=", group_size, "'");
  const auto ranks = get_process_group_ranks(group);
  std::vector<std::vector<int>> lists;
  for (size_t i = 0; i < ranks.size(); i += group_size) {
    lists.emplace_back(ranks.begin() + i, ranks.begin() + i + group_size);
  }
  return new_subgroups_by_enumeration(lists, options);
}

Subgroups new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_subgroup_list,
                                       const NewGroupOptions& options) {
  TORCH_CHECK_VALUE(!ranks_per_subgroup_list.empty(), "The arg 'ranks_per_subgroup_list' cannot be empty");
  // Checked before the first group is made, so that an error leaves no group behind.
  std::map<int, const std::vector<int>*> owner;
  for (const auto& ranks : ranks_per_subgroup_list) {
    for (const int rank : ranks) {
      const bool first = owner.emplace(rank, &ranks).second;
      TORCH_CHECK_VALUE(first || owner[rank] == &ranks, "Rank ", rank, " has appeared in both subgroup ",
                        list_text(*owner[rank]), " and ", list_text(ranks));
    }
  }
  Subgroups result{comm::non_member(), {}};
  for (const auto& ranks : ranks_per_subgroup_list) {
    result.second.push_back(new_group(ranks, options));
    if (is_member(result.second.back())) result.first = result.second.back();
  }
  return result;
}

Group split_group(const Group& parent, const std::vector<std::vector<int>>& split_ranks,
                  const SplitGroupOptions& options) {
  comm::remove_released();
  TORCH_CHECK_VALUE(is_member(parent), "Global rank ", get_rank(), " is not part of the parent group");
  const auto& record = record_of(parent);
  check_split_lists(split_ranks, record.group->getSize());
  auto config = split_config(record, options.backend);
  const auto device_id = default_group()->getBoundDeviceId();
  const bool splits_unbound = std::all_of(config.begin(), config.end(), [](const auto& entry) {
    return entry.device == c10::DeviceType::CPU || !comm::capability_of(entry.backend).splits_bound_only;
  });
  TORCH_CHECK(splits_unbound || device_id,
              "No device associated with the default pg, not safe to split any process groups");
  const int own = record.group->getRank();
  const auto mine = std::find_if(split_ranks.begin(), split_ranks.end(), [&](const auto& list) {
    return std::find(list.begin(), list.end(), own) != list.end();
  });
  // Every rank of the parent counts splits, so that names agree however many other groups each rank is in.
  const auto name = c10::str(record.name, ":split:", record.num_splits++, ":", mine - split_ranks.begin());
  if (mine == split_ranks.end()) return {};
  auto members = *mine;
  std::sort(members.begin(), members.end());
  std::vector<int> global_ranks;
  for (const int rank : members) global_ranks.push_back(record.ranks[rank]);
  const bool is_chosen = options.backend.empty() && record.is_backend_chosen;
  if (is_chosen) config = comm::backend_config("");
  const auto named = options.backend.empty() ? record.backend : options.backend;
  const auto backend = is_chosen ? config.front().backend : named;
  const auto description = options.group_desc.empty() ? record.description + ":split" : options.group_desc;
  const auto store = record.store;
  auto part = make_record(name, std::move(global_ranks), backend, std::move(config), options.timeout, description);
  part.is_backend_chosen = is_chosen;
  const int group_rank = position(part.ranks);
  return comm::create_group(store, std::move(part), group_rank, device_id);
}

}  // namespace cohort
