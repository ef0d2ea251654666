/// Creation of groups: the ranks meet, the backends are made (backend_maker.h), and the group enters the world.
#pragma once

#include <optional>

#include "cohort/comm/group/world.h"
#include "cohort/comm/start/rendezvous_url.h"

namespace cohort::comm {

/// Creates a group. Collective over `record.ranks`. Keys below `store` are the same as in Python's _new_process_group_helper, so
/// that C++ and Python ranks meet. Sets the record's group and store, and its backend if Cohort chooses it. `device_id`:
/// InitOptions::device_id; `plan`: where the ranks of the default group met. Throws EarlierStoreEnded (membership_check.h) if
/// they met at an earlier store and may meet again.
Group create_group(const c10::intrusive_ptr<c10d::Store>& store, GroupRecord record, int group_rank,
                   std::optional<c10::Device> device_id, const std::optional<RendezvousPlan>& plan = std::nullopt);

/// Ends one group.
void remove_group(const Group& group);
/// Ends one group when nobody else holds it and a later group has all its ranks. This happens at once, or in remove_released(),
/// which the makers and releasers of other groups call. Ignores an unknown group.
void release_group(Group group) noexcept;
void remove_released() noexcept;
/// Ends all groups, the newest first as in PyTorch, and forgets the job.
void forget_everything();

/// Waits until `count` ranks have come to the group `name`, if TORCH_DIST_INIT_BARRIER=1. Follows PyTorch's
/// _store_based_barrier, including its keys.
void barrier_after_init(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, int count,
                        std::chrono::milliseconds timeout);

}  // namespace cohort::comm
