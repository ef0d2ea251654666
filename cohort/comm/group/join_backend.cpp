#include "cohort/comm/group/join_backend.h"

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>

#include "cohort/base/system/deadline.h"
#include "cohort/comm/group/backend_maker.h"
#include "cohort/comm/memory/apply_shared_allocator.h"
#include "cohort/comm/registry/backends.h"
#include "cohort/comm/start/membership_check.h"
#include "cohort/comm/watch/unawaited_works.h"
#include "cohort/comm/watch/unwrapped_training.h"

namespace cohort::comm {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Reads a store's prefix, for which PyTorch has no accessor.
class PrefixReader : public c10d::PrefixStore {
 public:
  static const std::string& prefix_of(const c10d::PrefixStore& store) { return store.*(&PrefixReader::prefix_); }
};

bool names_a_device(const std::string& prefix) {
  for (int i = 0; i < c10::COMPILE_TIME_MAX_DEVICE_TYPES; ++i) {
    if (prefix == c10::DeviceTypeName(static_cast<c10::DeviceType>(i), /*lower_case=*/true) + "/") return true;
  }
  return false;
}

// Removes the prefix for the device that torch.distributed adds to the group's store. Any other prefix is the caller's own, and
// may be the only thing that separates the keys of several groups.
StorePtr store_of_group(const StorePtr& given) {
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(given.get());
  return prefixed && names_a_device(PrefixReader::prefix_of(*prefixed)) ? prefixed->getUnderlyingStore() : given;
}

bool lies_in(StorePtr store, const c10d::Store* outer) {
  while (store.get() != outer) {
    auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store.get());
    if (!prefixed) return false;
    store = prefixed->getUnderlyingStore();
  }
  return true;
}

// The jobs whose first group this process has joined. Does not keep them alive. Thread-safe.
class JoinedJobs {
 public:
  void add(const std::shared_ptr<Roster>& roster) {
    const std::lock_guard lock(mutex_);
    std::erase_if(rosters_, [](const auto& each) { return each.expired(); });
    rosters_.push_back(roster);
  }

  /// Returns the job whose first group's store contains `store`, or null.
  std::shared_ptr<Roster> find(const StorePtr& store) const {
    std::vector<std::shared_ptr<Roster>>
        living;  // released without the lock, because a roster may be the last holder of a store
    {
      const std::lock_guard lock(mutex_);
      for (const auto& each : rosters_) {
        if (auto roster = each.lock()) living.push_back(std::move(roster));
      }
    }
    const auto found = std::find_if(living.rbegin(), living.rend(),
                                    [&](const auto& roster) { return lies_in(store, roster->store().get()); });
    return found == living.rend() ? nullptr : *found;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Roster>> rosters_;
};

std::atomic<bool> is_rank_0 = false;  // in the default group that was joined last

JoinedJobs& joined_jobs() {
  static auto* const instance = new JoinedJobs;  // never destroyed: threads may still use it
  return *instance;
}

// A group that a program builds by hand has no list of ranks, either.
bool is_default_group(const JoinRequest& request) {
  return request.global_ranks.empty() && (request.group_name.empty() || request.group_name == "0");
}

GroupRecord record_to_join(const JoinRequest& request) {
  GroupRecord record;
  record.store = store_of_group(request.store);
  record.name = request.group_name;
  record.description = is_default_group(request) ? "default_pg" : request.group_name;
  record.backend = request.backend;
  record.config = {{c10::DeviceType::CPU, request.backend}};
  record.ranks = request.global_ranks;
  record.timeout = base::bounded_time(request.timeout);
  return record;
}

void watch_for_unwrapped_python(const JoinRequest& request, const std::shared_ptr<Roster>& roster) {
  watch_for_unwrapped_training({.rank = request.rank,
                                .world_size = request.world_size,
                                .wrapper = "torch.nn.parallel.DistributedDataParallel",
                                .advice = "A framework that looks at the backend's name may not have wrapped it: "
                                          "docs/guide/python.md has what to write for each.",
                                .job = roster});
}

std::shared_ptr<Roster> check_members(const JoinRequest& request, const GroupRecord& record) {
  // A single rank waits for nobody, and other single ranks may use the same keys for their groups.
  if (request.world_size == 1) return Roster::unannounced(record.store, request.rank, request.world_size);
  const auto& capability = capability_of(request.backend);
  return Roster::by_membership_check({.store = record.store,
                                      .rank = request.rank,
                                      .world_size = request.world_size,
                                      .timeout = request.timeout,
                                      .plan = std::nullopt,
                                      .uses_gloo = capability.listens,
                                      .is_among_own_kind = true,
                                      .needs_shared_memory = capability.shares_memory,
                                      .group = record.description});
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
  TORCH_CHECK_VALUE(request.world_size >= 1, "[cohort] the world size must be at least 1, got ", request.world_size,
                    "; see the variable WORLD_SIZE, or the argument world_size of init_process_group");
  TORCH_CHECK_VALUE(request.rank >= 0 && request.rank < request.world_size, "[cohort] rank ", request.rank,
                    " is out of range. Valid ranks are 0 to ", request.world_size - 1,
                    " (world_size=", request.world_size,
                    "); see the variable RANK, or the argument rank of init_process_group");
  apply_shared_allocator(false);
  auto record = record_to_join(request);
  const bool is_first = request.global_ranks.empty();
  // Ranks of a job's later groups know each other from its first one.
  const bool may_be_later = static_cast<int>(request.global_ranks.size()) == request.world_size;
  auto roster = may_be_later ? joined_jobs().find(record.store) : nullptr;
  const bool is_own_job = !roster;
  if (is_own_job) {
    record.ranks.resize(static_cast<size_t>(request.world_size));
    std::iota(record.ranks.begin(), record.ranks.end(), 0);
    roster = check_members(request, record);
    if (is_first) joined_jobs().add(roster);
  }
  record.watch = roster->watch({record.description, record.ranks, request.rank, record.timeout, record.store});
  BackendMaker maker(record, roster,
                     {.rank = request.rank,
                      .global_ranks = {request.global_ranks.begin(), request.global_ranks.end()},
                      .device_id = std::nullopt,
                      .has_called_roll = is_own_job,
                      .timeout_option = is_first ? "the timeout of init_process_group" : "the timeout of new_group"});
  auto backend = maker.make(request.backend, request.store);
  if (is_default_group(request)) {
    is_rank_0 = request.rank == 0;
    watch_for_unwrapped_python(request, roster);
  }
  return backend;
}

void warn_of_unawaited_in_joined() { warn_of_unawaited(is_rank_0); }

}  // namespace cohort::comm
