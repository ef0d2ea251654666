#include "cohort/comm/process_group.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <numeric>

#include "cohort/base/env.h"
#include "cohort/comm/gloo/gloo_backend.h"
#include "cohort/comm/process_watch.h"
#include "cohort/comm/rendezvous.h"
#include "cohort/comm/rendezvous_url.h"
#include "cohort/comm/roll_call.h"
#include "cohort/comm/threads.h"
#include "cohort/comm/world.h"

namespace cohort {
namespace {

using comm::GroupRecord;
using comm::record_of;
using comm::world;
using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

constexpr milliseconds kDefaultTimeout = std::chrono::minutes(30);

// Stands for "this process is not a member": a group object no collective accepts.
const Group& non_member() {
  static auto* const object = new Group(c10::make_intrusive<c10d::ProcessGroup>(-1, -1));
  return *object;
}

// "gloo", "cpu:gloo" and the empty string all mean Gloo for CPU tensors.
std::string checked_backend(const std::string& backend) {
  const auto name = backend.empty() || backend == "cpu:gloo" ? "gloo" : backend;
  TORCH_CHECK_VALUE(name == "gloo", "backend \"", backend,
                    "\" is not available in this build of Cohort; available: \"gloo\", \"cpu:gloo\"");
  return name;
}

c10::intrusive_ptr<c10d::Backend> connect(const GroupRecord& record, int group_rank, const std::string& description,
                                          bool is_first) {
  comm::BackendRequest request{.store = c10::make_intrusive<c10d::PrefixStore>("cpu/", record.store),
                               .rank = group_rank,
                               .world_size = static_cast<int>(record.ranks.size()),
                               .timeout = record.timeout,
                               .group_name = description,
                               .global_ranks = {},
                               .watch = comm::make_process_watch(world().peers, record.ranks, record.timeout),
                               .device_id = std::nullopt};
  // As in PyTorch, the default group's list stays empty.
  if (world().default_group) request.global_ranks.assign(record.ranks.begin(), record.ranks.end());
  try {
    return comm::make_gloo_backend(request);
  } catch (const c10::ValueError&) {
    throw;
  } catch (const std::exception& error) {
    const auto text =
        comm::explain_failed_connect({.store = record.store,
                                      .group = description,
                                      .ranks = record.ranks,
                                      .option = is_first ? "InitOptions::timeout" : "NewGroupOptions::timeout",
                                      .engine_text = error.what()},
                                     *world().peers);
    if (is_first) comm::leave_roll(record.store, group_rank);
    C10_THROW_ERROR(DistBackendError, text);
  }
}

// Creates the group and enters it in the world. Keys in the store are those of Python's _new_process_group_helper, so that
// C++ and Python ranks meet.
Group create_group(const StorePtr& store, GroupRecord record, int group_rank, const std::string& description,
                   const std::optional<comm::RendezvousPlan>& plan = std::nullopt) {
  const auto size = static_cast<int>(record.ranks.size());
  record.store = c10::make_intrusive<c10d::PrefixStore>(record.name + "/", store);
  const bool is_first = !world().peers;
  if (is_first) {
    world().peers = std::make_shared<comm::Peers>(record.store, group_rank, size);
    comm::call_roll({.store = record.store,
                     .rank = group_rank,
                     .world_size = size,
                     .timeout = record.timeout,
                     .plan = plan,
                     .accelerator = {}});
    world().peers->collect();
  }
  const auto backend = connect(record, group_rank, description, is_first);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(record.store, group_rank, size);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  for (const auto device : {c10::DeviceType::CPU, c10::DeviceType::CUDA}) {
    group->setBackend(device, c10d::ProcessGroup::BackendType::GLOO, backend);
  }
  group->setGroupName(record.name);
  group->setGroupDesc(description);
  record.group = group;
  world().groups.emplace(world().group_count++, std::move(record));
  return group;
}

int ranks_on_host(const comm::RendezvousPlan* plan) {
  if (const auto size = base::get_env("LOCAL_WORLD_SIZE")) return std::atoi(size->c_str());
  if (world().peers->knows_all()) return world().peers->ranks_on_this_host();
  const bool loopback = plan && (plan->host == "localhost" || plan->host.rfind("127.", 0) == 0 || plan->host == "::1");
  return loopback ? plan->world_size : 0;
}

GroupRecord make_record(std::string name, std::vector<int> ranks, std::string backend, milliseconds timeout) {
  GroupRecord record;
  record.name = std::move(name);
  record.ranks = std::move(ranks);
  record.backend = std::move(backend);
  record.timeout = timeout;
  return record;
}

std::vector<int> all_ranks(int world_size) {
  std::vector<int> ranks(world_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<int> checked_ranks(std::vector<int> ranks, int world_size) {
  if (ranks.empty()) return all_ranks(world_size);
  std::sort(ranks.begin(), ranks.end());
  TORCH_CHECK_VALUE(std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end(),
                    "ranks list must not contain duplicate entries, got [", c10::Join(", ", ranks), "]");
  TORCH_CHECK_VALUE(static_cast<int>(ranks.size()) <= world_size,
                    "the new group's world size should be less or equal to the world size set by init_process_group");
  for (const int rank : ranks) {
    TORCH_CHECK_VALUE(rank >= 0 && rank < world_size, "Rank ", rank, " is out of range. Valid ranks are 0 to ",
                      world_size - 1, " (world_size=", world_size, ")");
  }
  return ranks;
}

void forget_everything() {
  auto& current = world();
  current.default_group.reset();
  // Newest first, as in PyTorch.
  while (!current.groups.empty()) current.groups.erase(std::prev(current.groups.end()));
  current.peers.reset();
  current.group_count = 0;
}

void check_init_options(const InitOptions& options) {
  TORCH_CHECK_VALUE(!world().default_group, "trying to initialize the default process group twice!");
  TORCH_CHECK_VALUE(!options.store || options.init_method.empty(), "Cannot specify both init_method and store.");
  if (options.store) {
    TORCH_CHECK_VALUE(options.world_size > 0, "world_size must be positive if using store");
    TORCH_CHECK_VALUE(options.rank >= 0, "rank must be non-negative if using store");
    TORCH_CHECK_VALUE(options.rank < options.world_size, "rank must be from 0 to ", options.world_size - 1,
                      " (world_size=", options.world_size, "), got ", options.rank);
  }
  TORCH_CHECK_VALUE(!options.timeout || options.timeout->count() > 0, "timeout must be positive, got ",
                    options.timeout ? options.timeout->count() : 0, " ms");
}

}  // namespace

void init_process_group(const InitOptions& options) {
  check_init_options(options);
  const auto backend = checked_backend(options.backend);
  const auto timeout = options.timeout.value_or(kDefaultTimeout);
  std::optional<comm::RendezvousPlan> plan;
  auto store = options.store;
  int rank = options.rank;
  int world_size = options.world_size;
  if (!store) {
    plan = comm::plan_rendezvous(options.init_method.empty() ? "env://" : options.init_method, rank, world_size);
    store = comm::meet(*plan, timeout);
    rank = plan->rank;
    world_size = plan->world_size;
  }
  comm::install_exit_handlers();
  try {
    world().default_group =
        create_group(store, make_record("0", all_ranks(world_size), backend, timeout), rank, "default_pg", plan);
  } catch (...) {
    forget_everything();
    throw;
  }
  comm::apply_default_thread_count(ranks_on_host(plan ? &*plan : nullptr));
}

void init_process_group(const char* backend) { init_process_group(InitOptions{.backend = backend}); }

void destroy_process_group(const Group& group) {
  const auto& record = record_of(group);
  if (record.group == world().default_group) {
    forget_everything();
  } else {
    auto& groups = world().groups;
    std::erase_if(groups, [&](const auto& entry) { return entry.second.group == group; });
  }
}

bool is_initialized() { return static_cast<bool>(world().default_group); }

bool is_torchelastic_launched() { return base::get_env("TORCHELASTIC_RUN_ID").has_value(); }

Group default_group() {
  TORCH_CHECK_VALUE(is_initialized(),
                    "Default process group has not been initialized, please make sure to call init_process_group.");
  return world().default_group;
}

bool is_member(const Group& group) { return group != non_member(); }

int get_rank(const Group& group) {
  const auto fallback = default_group();
  if (!is_member(group)) return -1;
  return group ? group->getRank() : fallback->getRank();
}

int get_world_size(const Group& group) {
  const auto fallback = default_group();
  if (!is_member(group)) return -1;
  return group ? group->getSize() : fallback->getSize();
}

std::string get_backend(const Group& group) {
  TORCH_CHECK_VALUE(is_member(group), "Invalid process group specified");
  return record_of(group).backend;
}

int get_node_local_rank(std::optional<int> fallback_rank) {
  const auto value = base::get_env("LOCAL_RANK");
  if (!value) {
    TORCH_CHECK(
        fallback_rank.has_value(),
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to "
        "work, assuming you are not running in a multi-device context and want the code to run locally instead.");
    return *fallback_rank;
  }
  char* end = nullptr;
  const long rank = std::strtol(value->c_str(), &end, 10);
  TORCH_CHECK_VALUE(!value->empty() && *end == '\0', "environment variable LOCAL_RANK must be an integer, got \"",
                    *value, "\"");
  return static_cast<int>(rank);
}

int get_group_rank(const Group& group, int global_rank) {
  const auto& ranks = record_of(group).ranks;
  const auto found = std::find(ranks.begin(), ranks.end(), global_rank);
  TORCH_CHECK_VALUE(found != ranks.end(), "Global rank ", global_rank, " is not part of group ", record_of(group).name);
  return static_cast<int>(found - ranks.begin());
}

int get_global_rank(const Group& group, int group_rank) {
  const auto& ranks = record_of(group).ranks;
  TORCH_CHECK_VALUE(group_rank >= 0 && group_rank < static_cast<int>(ranks.size()), "Group rank ", group_rank,
                    " is not part of group ", record_of(group).name);
  return ranks[group_rank];
}

std::vector<int> get_process_group_ranks(const Group& group) { return record_of(group).ranks; }

Group new_group(std::vector<int> ranks, const NewGroupOptions& options) {
  const auto parent = default_group();
  const auto& defaults = record_of(parent);
  const auto backend = options.backend.empty() ? defaults.backend : checked_backend(options.backend);
  ranks = checked_ranks(std::move(ranks), parent->getSize());
  const auto name = std::to_string(world().group_count);
  const auto self = std::find(ranks.begin(), ranks.end(), parent->getRank());
  if (self == ranks.end()) {
    ++world().group_count;
    return non_member();
  }
  const int group_rank = static_cast<int>(self - ranks.begin());
  const auto description = options.group_desc.empty() ? name : options.group_desc;
  return create_group(defaults.store,
                      make_record(name, std::move(ranks), backend, options.timeout.value_or(kDefaultTimeout)),
                      group_rank, description);
}

}  // namespace cohort
