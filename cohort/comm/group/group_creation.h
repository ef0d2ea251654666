/// How a group comes to be: its ranks meet, its backends are made (backend_maker.h), and it enters the world.
#pragma once

#include <optional>

#include "cohort/comm/group/world.h"
#include "cohort/comm/start/rendezvous_url.h"

namespace cohort::comm {

/// Collective over `record.ranks`. Keys below `store` are those of Python's _new_process_group_helper, so that C++ and
/// Python ranks meet. Where the backend is chosen, the record gets what was chosen. Sets the record's group
/// and store. `device_id`: InitOptions::device_id; `plan`: where the ranks of the default group met. Throws EarlierStoreEnded
/// (roll_call.h) where they met before and may meet again.
Group create_group(const c10::intrusive_ptr<c10d::Store>& store, GroupRecord record, int group_rank,
                   std::optional<c10::Device> device_id, const std::optional<RendezvousPlan>& plan = std::nullopt);

/// Ends one group.
void remove_group(const Group& group);
/// Ends one group once nobody else holds it and a later group has all its ranks: now, or when remove_released() is called, as
/// whoever makes or releases another group does. A group that is unknown by now is left alone.
void release_group(Group group) noexcept;
void remove_released() noexcept;
/// Ends all of them, the newest first as in PyTorch, and forgets the job.
void forget_everything();

/// With TORCH_DIST_INIT_BARRIER=1: waits until `count` ranks have come to the group `name`. Follows PyTorch's
/// _store_based_barrier, keys included.
void barrier_after_init(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, int count,
                        std::chrono::milliseconds timeout);

}  // namespace cohort::comm
