#include "cohort/comm/group/group_creation.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>

#include <algorithm>

#include "cohort/base/env.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/comm/registry/backends.h"
#include "cohort/comm/shm/make_shm_backend.h"
#include "cohort/comm/start/roll_call.h"
#include "cohort/comm/watch/process_watch.h"
#include "cohort/comm/watch/unwrapped_training.h"
#include "cohort/job/shm_choice.h"

namespace cohort::comm {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using BackendType = c10d::ProcessGroup::BackendType;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using std::chrono::milliseconds;

// With TORCH_DISTRIBUTED_DEBUG=DETAIL every collective is compared over a helper group first, as in PyTorch.
BackendPtr wrap_for_debugging(BackendPtr backend, const GroupRecord& record, const StorePtr& store, int group_rank) {
  if (c10d::debug_level() != c10d::DebugLevel::Detail) return backend;
  const auto helper_store = c10::make_intrusive<c10d::PrefixStore>("pg_wrapper:" + record.name, store);
  auto helper =
      c10::make_intrusive<c10d::ProcessGroupGloo>(helper_store, group_rank, static_cast<int>(record.ranks.size()),
                                                  c10d::ProcessGroupGloo::Options::create_default(record.timeout));
  return c10::make_intrusive<c10d::ProcessGroupWrapper>(backend, std::move(helper));
}

// Of all members, or none.
std::vector<int> known_pids(const GroupRecord& record) {
  std::vector<int> pids;
  for (const int rank : record.ranks) {
    const auto arrival = world().peers->arrival(rank);
    if (!arrival.peer) return {};
    pids.push_back(arrival.peer->pid);
  }
  return pids;
}

std::vector<std::string> obstacles_to_shm(const GroupRecord& record) {
  std::vector<job::Arrival> members;
  for (const int rank : record.ranks) members.push_back(world().peers->arrival(rank));
  return job::obstacles_to_shm(members);
}

BackendPtr make_backend(const GroupRecord& record, int group_rank, const DeviceBackend& entry,
                        std::optional<c10::Device> device_id) {
  const auto device = c10::DeviceTypeName(entry.device, /*lower_case=*/true);
  BackendRequest request{.store = c10::make_intrusive<c10d::PrefixStore>(device + "/", record.store),
                         .rank = group_rank,
                         .world_size = static_cast<int>(record.ranks.size()),
                         .timeout = record.timeout,
                         .group_name = record.description,
                         .global_ranks = {},
                         .watch = record.watch,
                         .device_id = device_id,
                         .c10d_name = record.name,
                         .start_count = world().peers->start_count(),
                         .pids = known_pids(record),
                         .shm_obstacles = obstacles_to_shm(record)};
  // As in PyTorch, the default group's list stays empty.
  if (world().default_group) request.global_ranks.assign(record.ranks.begin(), record.ranks.end());
  const auto& kind = backend_kind(entry.backend);
  auto backend = kind.create(request);
  TORCH_CHECK(backend, "the creator of backend \"", entry.backend, "\" returned no backend");
  if (kind.is_registered) return backend;
  return wrap_for_debugging(std::move(backend), record, request.store, group_rank);
}

// One object serves all devices that name the same backend, as in PyTorch.
void set_backends(const Group& group, const GroupRecord& record, int group_rank, std::optional<c10::Device> device_id) {
  std::vector<std::pair<std::string, BackendPtr>> made;
  for (const auto& entry : record.config) {
    auto found = std::find_if(made.begin(), made.end(), [&](const auto& one) { return one.first == entry.backend; });
    if (found == made.end()) {
      const bool second_custom = std::any_of(made.begin(), made.end(), [&](const auto& one) {
        return backend_kind(one.first).type == BackendType::CUSTOM;
      });
      TORCH_CHECK_VALUE(!second_custom || backend_kind(entry.backend).type != BackendType::CUSTOM, "backend string \"",
                        record.backend, "\": c10d cannot tell two registered backends of one group apart");
      made.emplace_back(entry.backend, make_backend(record, group_rank, entry, device_id));
      found = std::prev(made.end());
    }
    group->setBackend(entry.device, backend_kind(entry.backend).type, found->second);
  }
}

bool uses(const GroupRecord& record, const char* backend) {
  return std::any_of(record.config.begin(), record.config.end(), [&](const auto& e) { return e.backend == backend; });
}

bool may_use_gloo(const GroupRecord& record) { return uses(record, "gloo") || uses(record, "cohort"); }

// What tells this GPU from others of the host: the entry of CUDA_VISIBLE_DEVICES that it stands for, else its number.
std::string physical_device(c10::Device device) {
  const auto visible = base::get_env("CUDA_VISIBLE_DEVICES");
  const auto index = static_cast<size_t>(device.index());
  if (!visible || visible->empty()) return "GPU " + std::to_string(index);
  const auto names = base::split(*visible, ',');
  return "GPU " + (index < names.size() ? base::trim(names[index]) : std::to_string(index));
}

void meet_others(const GroupRecord& record, int rank, const std::optional<RendezvousPlan>& plan,
                 std::optional<c10::Device> device_id) {
  if (!calls_roll(record.config)) return world().peers->publish();
  world().peers->learn(call_roll({.store = record.store,
                                  .rank = rank,
                                  .world_size = static_cast<int>(record.ranks.size()),
                                  .timeout = record.timeout,
                                  .plan = plan,
                                  .accelerator = uses(record, "nccl") && device_id ? physical_device(*device_id) : "",
                                  .uses_gloo = may_use_gloo(record),
                                  .needs_shared_memory = uses(record, "shm"),
                                  .group = record.description}));
}

void connect(const Group& group, const GroupRecord& record, int group_rank, std::optional<c10::Device> device_id,
             bool is_first) {
  try {
    set_backends(group, record, group_rank, device_id);
  } catch (const c10::ValueError&) {
    throw;
  } catch (const std::exception& error) {
    if (is_first && uses(record, "shm")) leave_roll(record.store, group_rank);
    if (!may_use_gloo(record)) throw;
    const auto text = explain_failed_connect({.store = record.store,
                                              .group = record.description,
                                              .ranks = record.ranks,
                                              .option = is_first ? "InitOptions::timeout" : "NewGroupOptions::timeout",
                                              .engine_text = error.what()},
                                             *world().peers);
    if (is_first) leave_roll(record.store, group_rank);
    C10_THROW_ERROR(DistBackendError, text);
  }
}

// Makes `record` one of backend "shm" and connects it. Returns: why this cannot be, or an empty text; the same on all ranks.
std::string connect_by_shm(const Group& group, GroupRecord& record, int group_rank) {
  if (const auto obstacles = obstacles_to_shm(record); !obstacles.empty()) return obstacles.front();
  auto wanted = record;
  wanted.backend = "shm";
  wanted.config = {{c10::DeviceType::CPU, "shm"}};
  try {
    set_backends(group, wanted, group_rank, std::nullopt);
  } catch (const CannotShareMemory& error) {
    return error.reason();
  }
  record = std::move(wanted);
  return {};
}

BackendType default_type(const GroupRecord& record) {
  for (const auto& entry : record.config) {
    if (entry.backend == "nccl") return BackendType::NCCL;
  }
  return backend_kind(record.config.front().backend).type;
}

}  // namespace

bool calls_roll(const std::vector<DeviceBackend>& config) {
  return std::any_of(config.begin(), config.end(), [](const auto& entry) {
    return entry.backend == "gloo" || entry.backend == "shm" || entry.backend == "cohort";
  });
}

bool may_choose_backend(const std::string& named, const std::vector<DeviceBackend>& config) {
  return named.empty() && config == std::vector<DeviceBackend>{{c10::DeviceType::CPU, "gloo"}};
}

Group create_group(const StorePtr& store, GroupRecord record, int group_rank, std::optional<c10::Device> device_id,
                   const std::optional<RendezvousPlan>& plan) {
  const auto size = static_cast<int>(record.ranks.size());
  record.store = c10::make_intrusive<c10d::PrefixStore>(record.name + "/", store);
  const bool is_first = !world().peers;
  if (is_first) {
    world().peers = std::make_shared<Peers>(record.store, group_rank, size);
    meet_others(record, group_rank, plan, device_id);
    world().reports = std::make_shared<Reports>(record.store, world().peers, group_rank, size);
  }
  auto group = c10::make_intrusive<c10d::ProcessGroup>(record.store, group_rank, size);
  if (device_id) group->setBoundDeviceId(device_id);
  record.watch = make_process_watch(world().peers, world().reports,
                                    {record.description, record.ranks, group_rank, record.timeout, record.store});
  if (uses(record, "shm")) {
    const auto obstacles = obstacles_to_shm(record);
    TORCH_CHECK_VALUE(obstacles.empty(), job::shm_refusal_text(record.description, obstacles));
  }
  const auto reason = record.is_backend_chosen ? connect_by_shm(group, record, group_rank) : "";
  if (!uses(record, "shm") || !record.is_backend_chosen) connect(group, record, group_rank, device_id, is_first);
  group->setDefaultBackend(default_type(record));
  // Ranks without a roll call may have written themselves by now.
  if (is_first && !calls_roll(record.config)) world().peers->collect();
  group->setGroupName(record.name);
  group->setGroupDesc(record.description);
  c10d::register_process_group(record.name, group);
  base::log_info("group \"" + record.description + "\": rank " + std::to_string(group_rank) + " of " +
                 std::to_string(size) + ", backend " + to_string(record.config) +
                 (reason.empty() ? "" : ", as " + reason));
  record.group = group;
  world().groups.push_back(std::move(record));
  return group;
}

void remove_group(const Group& group) {
  auto& groups = world().groups;
  for (const auto& record : groups) {
    if (record.group == group) c10d::unregister_process_group(record.name);
  }
  std::erase_if(groups, [&](const auto& record) { return record.group == group; });
}

void forget_everything() {
  auto& current = world();
  gradients_are_exchanged();  // nobody is left to exchange them with
  current.default_group.reset();
  while (!current.groups.empty()) {
    c10d::unregister_process_group(current.groups.back().name);
    current.groups.pop_back();
  }
  current.peers.reset();
  current.reports.reset();
  current.group_count = 0;
  current.num_local_groups.clear();
}

void barrier_after_init(const StorePtr& store, const std::string& name, int count, milliseconds timeout) {
  if (base::get_env("TORCH_DIST_INIT_BARRIER").value_or("0") != "1") return;
  const auto key = "store_based_barrier_key:" + name;
  const auto last_worker = key + ":last_worker";
  if (store->add(key, 1) == count) store->set(last_worker, std::vector<uint8_t>{'1'});
  try {
    store->wait({last_worker}, timeout);
  } catch (const std::exception&) {
    C10_THROW_ERROR(DistStoreError, "Timed out initializing process group in store based barrier for key: " + key +
                                        " (world_size=" + std::to_string(count) +
                                        ", num_workers_joined=" + std::to_string(store->add(key, 0)) +
                                        ", timeout=" + std::to_string(timeout.count()) + " ms)");
  }
}

}  // namespace cohort::comm
