#include "cohort/comm/group/join_backend.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <numeric>

#include "cohort/comm/group/backend_maker.h"
#include "cohort/comm/memory/apply_shared_allocator.h"
#include "cohort/comm/registry/backends.h"
#include "cohort/comm/start/roll_call.h"

namespace cohort::comm {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

StorePtr store_of_group(const JoinRequest& request) {
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(request.store.get());
  TORCH_CHECK_VALUE(prefixed, "backend \"", request.backend,
                    "\" needs the store that torch.distributed gives to a backend, a PrefixStore");
  return prefixed->getUnderlyingStore();
}

GroupRecord record_to_join(const JoinRequest& request, const StorePtr& store) {
  GroupRecord record;
  record.store = store;
  record.name = request.group_name;
  record.description = request.global_ranks.empty() ? "default_pg" : request.group_name;
  record.backend = request.backend;
  record.config = {{c10::DeviceType::CPU, request.backend}};
  record.ranks = request.global_ranks;
  record.timeout = request.timeout;
  return record;
}

std::shared_ptr<Roster> roll_call_of(const JoinRequest& request, const GroupRecord& record) {
  const auto& capability = capability_of(request.backend);
  return Roster::by_roll_call({.store = record.store,
                               .rank = request.rank,
                               .world_size = request.world_size,
                               .timeout = request.timeout,
                               .plan = std::nullopt,
                               .uses_gloo = capability.listens,
                               .is_among_own_kind = true,
                               .needs_shared_memory = capability.shares_memory,
                               .group = record.description});
}

BackendPtr join_group(const JoinRequest& request, const StorePtr& store) {
  apply_shared_allocator(false);
  auto& joined = world().joined;
  const bool is_default = request.global_ranks.empty();
  auto record = record_to_join(request, store);
  // Groups after the first know each other from the default group, if that is one of ours.
  auto roster = is_default ? nullptr : joined.roster.lock();
  const bool is_own_job = !roster;
  if (is_own_job) {
    record.ranks.resize(static_cast<size_t>(request.world_size));
    std::iota(record.ranks.begin(), record.ranks.end(), 0);
    roster = roll_call_of(request, record);
    if (is_default) joined.roster = roster;
  }
  record.watch = roster->watch({record.description, record.ranks, request.rank, record.timeout, store});
  BackendMaker maker(record, roster,
                     {.rank = request.rank,
                      .global_ranks = {request.global_ranks.begin(), request.global_ranks.end()},
                      .device_id = std::nullopt,
                      .has_called_roll = is_own_job,
                      .timeout_option = is_default ? "the timeout of init_process_group" : "the timeout of new_group"});
  return maker.make(request.backend, request.store);
}

}  // namespace

std::map<std::string, std::vector<std::string>> joinable_backends() {
  std::map<std::string, std::vector<std::string>> found;
  for (const auto& capability : known_backends()) {
    if (!capability.is_joinable) continue;
    auto& devices = found[capability.name];
    for (const auto device : capability.devices) devices.push_back(c10::DeviceTypeName(device, /*lower_case=*/true));
  }
  return found;
}

BackendPtr join_backend(const JoinRequest& request) {
  TORCH_CHECK_VALUE(request.world_size >= 1, "the world size must be at least 1, got ", request.world_size,
                    "; see the variable WORLD_SIZE, or the argument world_size of init_process_group");
  TORCH_CHECK_VALUE(request.rank >= 0 && request.rank < request.world_size, "rank ", request.rank,
                    " is out of range. Valid ranks are 0 to ", request.world_size - 1,
                    " (world_size=", request.world_size,
                    "); see the variable RANK, or the argument rank of init_process_group");
  auto& joined = world().joined;
  const auto store = store_of_group(request);
  if (auto known = joined.last_backend.lock(); known && joined.last_store == store.get()) return known;
  auto backend = join_group(request, store);
  joined.last_store = store.get();
  joined.last_backend = c10::weak_intrusive_ptr<c10d::Backend>(backend);
  return backend;
}

}  // namespace cohort::comm
