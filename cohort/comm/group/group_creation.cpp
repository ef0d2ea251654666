#include "cohort/comm/group/group_creation.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>

#include "cohort/base/log/log.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/backend/per_device_backend.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/group/backend_maker.h"
#include "cohort/comm/registry/backends.h"
#include "cohort/comm/start/membership_check.h"
#include "cohort/comm/watch/unawaited_works.h"
#include "cohort/comm/watch/unwrapped_training.h"

namespace cohort::comm {
namespace {

using BackendType = c10d::ProcessGroup::BackendType;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using std::chrono::milliseconds;

StorePtr store_for(const GroupRecord& record, c10::DeviceType device) {
  return c10::make_intrusive<c10d::PrefixStore>(c10::DeviceTypeName(device, /*lower_case=*/true) + "/", record.store);
}

// Makes one object for all devices that name the same backend, as PyTorch does.
void set_backends(const Group& group, const GroupRecord& record, BackendMaker& maker) {
  std::vector<std::pair<std::string, c10::intrusive_ptr<c10d::Backend>>> made;
  for (const auto& entry : record.config) {
    const auto type = backend_kind(entry.backend).type;
    auto found = std::find_if(made.begin(), made.end(), [&](const auto& one) { return one.first == entry.backend; });
    if (found == made.end()) {
      const bool second_custom = std::any_of(made.begin(), made.end(), [&](const auto& one) {
        return backend_kind(one.first).type == BackendType::CUSTOM;
      });
      TORCH_CHECK_VALUE(!second_custom || type != BackendType::CUSTOM, "[cohort] backend string \"", record.backend,
                        "\": c10d cannot tell two registered backends of one group apart");
      made.emplace_back(entry.backend, maker.make(entry.backend, store_for(record, entry.device)));
      found = std::prev(made.end());
    }
    group->setBackend(entry.device, type, found->second);
  }
}

// Returns: why the chosen backend is not the fastest; may be empty.
std::string set_chosen_backend(const Group& group, GroupRecord& record, BackendMaker& maker) {
  const auto chosen = maker.choose_cpu(store_for(record, c10::DeviceType::CPU));
  group->setBackend(c10::DeviceType::CPU, backend_kind(chosen.name).type, chosen.backend);
  record.backend = chosen.name;
  record.config = {{c10::DeviceType::CPU, chosen.name}};
  return chosen.reason;
}

// Identifies this GPU among those of the host: its entry in CUDA_VISIBLE_DEVICES, otherwise its number.
std::string physical_device(c10::Device device) {
  const auto visible = base::get_env("CUDA_VISIBLE_DEVICES");
  const auto index = static_cast<size_t>(static_cast<unsigned char>(device.index()));
  if (!visible || visible->empty()) return "GPU " + std::to_string(index);
  const auto names = base::split(*visible, ',');
  return "GPU " + (index < names.size() ? base::trim(names[index]) : std::to_string(index));
}

bool calls_roll(const GroupRecord& record) { return any_can(record.config, &BackendCapability::calls_roll); }

std::shared_ptr<Roster> meet_others(const GroupRecord& record, int rank, const std::optional<RendezvousPlan>& plan,
                                    std::optional<c10::Device> device_id) {
  const auto size = static_cast<int>(record.ranks.size());
  // Python ranks with other backends write nothing that shows their arrival.
  if (!calls_roll(record)) return Roster::unannounced(record.store, rank, size);
  const bool names_gpu = device_id && any_can(record.config, &BackendCapability::owns_gpu);
  return Roster::by_membership_check(
      {.store = record.store,
       .rank = rank,
       .world_size = size,
       .timeout = record.timeout,
       .plan = plan,
       .is_met_again = plan && !world().last_place.empty() && place_of_rank_0(*plan) == world().last_place,
       .accelerator = names_gpu ? physical_device(*device_id) : "",
       .uses_gloo = any_can(record.config, &BackendCapability::listens),
       .needs_shared_memory = any_can(record.config, &BackendCapability::shares_memory),
       .group = record.description});
}

// Whether the roster must show if ranks can share memory.
bool needs_shared_memory_facts(const GroupRecord& record) {
  return record.is_backend_chosen || any_can(record.config, &BackendCapability::is_joinable);
}

bool has_all(const std::vector<int>& ranks, const std::vector<int>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](int rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); });
}

BackendType default_type(const GroupRecord& record) {
  for (const auto& entry : record.config) {
    const auto& kind = backend_kind(entry.backend);
    if (kind.capability.owns_gpu) return kind.type;
  }
  return backend_kind(record.config.front().backend).type;
}

Membership membership(const GroupRecord& record, int group_rank, std::optional<c10::Device> device_id, bool is_first) {
  Membership own{.rank = group_rank,
                 .global_ranks = {},
                 .device_id = device_id,
                 .has_called_roll = is_first && calls_roll(record),
                 .timeout_option = is_first ? "InitOptions::timeout" : "NewGroupOptions::timeout",
                 .wraps_for_debugging = true};
  if (!is_first) own.global_ranks.assign(record.ranks.begin(), record.ranks.end());
  return own;
}

}  // namespace

Group create_group(const StorePtr& store, GroupRecord record, int group_rank, std::optional<c10::Device> device_id,
                   const std::optional<RendezvousPlan>& plan) {
  const auto size = static_cast<int>(record.ranks.size());
  record.store = c10::make_intrusive<c10d::PrefixStore>(record.name + "/", store);
  const bool is_first = !world().roster;
  if (is_first) world().roster = meet_others(record, group_rank, plan, device_id);
  const auto& roster = world().roster;
  if (!is_first && needs_shared_memory_facts(record)) roster->await(record.ranks);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(record.store, group_rank, size);
  if (device_id) group->setBoundDeviceId(device_id);
  record.watch = roster->watch({record.description, record.ranks, group_rank, record.timeout, record.store});
  BackendMaker maker(record, roster, membership(record, group_rank, device_id, is_first));
  std::string reason;
  if (record.is_backend_chosen) {
    reason = set_chosen_backend(group, record, maker);
  } else {
    set_backends(group, record, maker);
  }
  group->setDefaultBackend(default_type(record));
  // Without a membership check, the other ranks may have written their entries by now.
  if (is_first && !calls_roll(record)) roster->collect();
  group->setGroupName(record.name);
  group->setGroupDesc(record.description);
  c10d::register_process_group(record.name, group);
  base::log_info("group \"" + record.description + "\": rank " + std::to_string(group_rank) + " of " +
                 std::to_string(size) + ", backend " + to_string(record.config) +
                 (reason.empty() ? "" : ", as " + reason));
  record.group = group;
  for (auto& earlier : world().groups) earlier.is_made_everywhere |= has_all(record.ranks, earlier.ranks);
  world().groups.push_back(std::move(record));
  return group;
}

namespace {

// Shuts down accelerators' backends, as PyTorch does: NCCL requires it. Backends for the CPU do not wait for anybody.
void shut_down_accelerators(const Group& group) {
  if (!group || !group->hasBackends()) return;
  for (const auto& device : group->getDeviceTypes()) {
    if (device.is_cpu()) continue;
    auto* const serving = find_serving(*group->getBackend(device.type()), device.type());
    if (serving) serving->shutdown();
  }
}

}  // namespace

void remove_group(const Group& group) {
  auto& groups = world().groups;
  shut_down_accelerators(group);
  for (const auto& record : groups) {
    if (record.group == group) c10d::unregister_process_group(record.name);
  }
  std::erase_if(groups, [&](const auto& record) { return record.group == group; });
}

void remove_released() noexcept {
  auto& groups = world().groups;
  const auto find = [&] {
    return std::find_if(groups.begin(), groups.end(), [](const auto& record) {
      return record.is_released && record.is_made_everywhere && record.group.use_count() == 1;
    });
  };
  for (auto found = find(); found != groups.end(); found = find()) {
    try {
      remove_group(Group(found->group));
    } catch (const std::exception& error) {
      base::log_warning("the end of group \"" + found->description + "\" failed: " + text_of(error));
      found->is_released = false;
    }
  }
}

void release_group(Group group) noexcept {
  for (auto& record : world().groups) {
    if (record.group == group) record.is_released = true;
  }
  group.reset();
  remove_released();
}

void forget_everything() {
  auto& current = world();
  gradients_are_exchanged();  // ends the watch: no rank is left to exchange gradients with
  const bool is_first = current.default_group && current.default_group->getRank() == 0;
  current.default_group.reset();
  while (!current.groups.empty()) {
    shut_down_accelerators(current.groups.back().group);
    c10d::unregister_process_group(current.groups.back().name);
    current.groups.pop_back();
  }
  current.roster.reset();
  current.group_count = 0;
  current.num_local_groups.clear();
  warn_of_unawaited(/*says=*/is_first);
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
