#include "cohort/comm/group/process_group.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "cohort/base/file/disk_space.h"
#include "cohort/base/net/address.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/system/env.h"
#include "cohort/comm/group/group_backend.h"
#include "cohort/comm/group/group_creation.h"
#include "cohort/comm/group/non_member.h"
#include "cohort/comm/group/threads.h"
#include "cohort/comm/memory/apply_shared_allocator.h"
#include "cohort/comm/registry/backends.h"
#include "cohort/comm/registry/cohort_backend.h"
#include "cohort/comm/registry/default_timeout.h"
#include "cohort/comm/start/membership_check.h"
#include "cohort/comm/start/rendezvous.h"
#include "cohort/comm/watch/unwrapped_training.h"
#include "cohort/rendezvous/environment/launch_environment.h"

namespace cohort {
namespace {

using comm::GroupRecord;
using comm::record_of;
using comm::world;
using std::chrono::milliseconds;

int ranks_on_host(const comm::RendezvousPlan* plan) {
  if (const auto size = base::get_env("LOCAL_WORLD_SIZE")) return std::atoi(size->c_str());
  const auto& peers = world().roster->peers();
  if (peers.knows_all()) return peers.ranks_on_this_host();
  const bool loopback = plan && (plan->host == "localhost" || base::is_loopback(plan->host));
  return loopback ? plan->world_size : 0;
}

GroupRecord default_record(const InitOptions& options, int world_size) {
  GroupRecord record;
  record.name = "0";
  record.description = "default_pg";
  record.config = comm::backend_config(options.backend);
  record.backend = options.backend.empty() ? record.config.front().backend : options.backend;
  record.is_backend_chosen = comm::chooses_backend(options.backend, record.config);
  record.timeout = comm::checked_timeout(options.timeout, record.config);
  record.ranks.resize(world_size);
  std::iota(record.ranks.begin(), record.ranks.end(), 0);
  return record;
}

void check_init_options(const InitOptions& options) {
  TORCH_CHECK_VALUE(!world().default_group, "trying to initialize the default process group twice!");
  TORCH_CHECK_VALUE(!options.store || options.init_method.empty(), "Cannot specify both init_method and store.");
  if (options.store) {
    TORCH_CHECK_VALUE(options.world_size > 0, "world_size must be positive if using store");
    TORCH_CHECK_VALUE(options.rank >= 0, "rank must be non-negative if using store");
    TORCH_CHECK_VALUE(options.rank < options.world_size, "[cohort] rank must be from 0 to ", options.world_size - 1,
                      " (world_size=", options.world_size, "), got ", options.rank);
  }
  TORCH_CHECK_VALUE(!options.device_id || (options.device_id->has_index() && !options.device_id->is_cpu()),
                    "init_process_group device_id parameter must be an accelerator with an index");
}

}  // namespace

Group init_process_group(const InitOptions& options) {
  base::survive_size_limit();
  // Called first, so that errors from here on are reported with the rank.
  comm::install_exit_handlers();
  check_init_options(options);
  comm::apply_shared_allocator(options.shared_allocator);
  if (base::get_env("TORCH_DISTRIBUTED_DEBUG")) c10d::setDebugLevelFromEnvironment();
  const auto record = default_record(options, 0);
  const auto timeout = record.timeout;
  std::optional<comm::RendezvousPlan> plan;
  auto store = options.store;
  int rank = options.rank;
  int world_size = options.world_size;
  if (!store) {
    plan = comm::plan_rendezvous(options.init_method.empty() ? "env://" : options.init_method, rank, world_size);
    rank = plan->rank;
    world_size = plan->world_size;
  }
  const auto attendance = comm::any_can(record.config, &comm::BackendCapability::calls_roll)
                              ? comm::Attendance::kMembershipCheck
                              : comm::Attendance::kStore;
  const auto end = base::deadline_after(timeout);
  auto left = timeout;
  while (!world().default_group) {
    if (plan) store = comm::meet(*plan, left, attendance);
    try {
      world().default_group =
          comm::create_group(store, default_record(options, world_size), rank, options.device_id, plan);
      ++world().group_count;
      comm::barrier_after_init(store, "0", world_size, timeout);
    } catch (const comm::EarlierStoreEnded&) {
      comm::forget_everything();
      left = base::time_left(end);
    } catch (...) {
      comm::forget_everything();
      throw;
    }
  }
  if (plan) store->setTimeout(timeout);
  world().last_place = plan ? comm::place_of_rank_0(*plan) : "";
  comm::watch_for_unwrapped_training(
      {.rank = rank, .world_size = world_size, .wrapper = "cohort::DistributedDataParallel", .job = world().roster});
  comm::apply_default_thread_count(ranks_on_host(plan ? &*plan : nullptr));
  return world().default_group;
}

Group init_process_group(const char* backend) { return init_process_group(InitOptions{.backend = backend}); }

void destroy_process_group(const Group& group) {
  if (record_of(group).group == world().default_group) {
    comm::forget_everything();
  } else {
    comm::remove_group(group);
  }
}

bool is_initialized() { return static_cast<bool>(world().default_group); }

bool is_torchelastic_launched() { return base::get_env("TORCHELASTIC_RUN_ID").has_value(); }

Group default_group() {
  if (!is_initialized()) comm::install_exit_handlers();  // the error below will most likely end the program
  TORCH_CHECK_VALUE(is_initialized(),
                    "Default process group has not been initialized, please make sure to call init_process_group.");
  return world().default_group;
}

const Group& comm::non_member() {
  static auto* const object = new Group(c10::make_intrusive<c10d::ProcessGroup>(-1, -1));
  return *object;
}

bool is_member(const Group& group) { return group != comm::non_member(); }

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

std::string get_backend_config(const Group& group) {
  TORCH_CHECK_VALUE(is_member(group), "Invalid process group specified");
  return to_string(record_of(group).config);
}

int get_pg_count() { return static_cast<int>(world().groups.size()); }

uint64_t get_sequence_number(const Group& group) {
  return comm::any_backend(record_of(group).group)->getSequenceNumberForGroup();
}

void set_pg_timeout(milliseconds timeout, const Group& group) {
  const auto wanted = record_of(group).group;
  TORCH_CHECK_VALUE(timeout.count() > 0, "[cohort] timeout must be positive, got ", timeout.count(), " ms");
  timeout = base::bounded_time(timeout);
  for (auto& record : world().groups) {
    if (record.group != wanted) continue;
    record.timeout = timeout;
    record.watch->set_timeout(timeout);
    for (const auto& entry : record.config) wanted->getBackend(entry.device)->setTimeout(timeout);
  }
}

int get_node_local_rank(std::optional<int> fallback_rank) {
  auto value = base::get_env("LOCAL_RANK");
  if (!value) {
    // The index in the default group distinguishes ranks that a scheduler started from those that its task started.
    const auto& group = world().default_group;
    value =
        rendezvous::LaunchEnvironment(group ? group->getRank() : -1, group ? group->getSize() : -1).get("LOCAL_RANK");
  }
  if (!value) {
    TORCH_CHECK(
        fallback_rank.has_value(),
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to "
        "work, assuming you are not running in a multi-device context and want the code to run locally instead.");
    return *fallback_rank;
  }
  char* end = nullptr;
  const long rank = std::strtol(value->c_str(), &end, 10);
  TORCH_CHECK_VALUE(!value->empty() && *end == '\0',
                    "[cohort] environment variable LOCAL_RANK must be an integer, got \"", *value, "\"");
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

}  // namespace cohort
