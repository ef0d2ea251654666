/// How a group comes to be: its backends are made, wrapped for debugging, and the group enters the world.
#pragma once

#include <optional>

#include "cohort/comm/group/world.h"
#include "cohort/comm/start/rendezvous_url.h"

namespace cohort::comm {

/// True if Cohort may take "shm" for it: no backend is named and it is for CPU tensors alone. `config`: what "" stands for.
bool may_choose_backend(const std::string& named, const std::vector<DeviceBackend>& config);

/// True if the ranks of a job with these backends wait for each other with explanations (roll_call.h). Otherwise Python ranks
/// write nothing by which their arrival could be seen.
bool calls_roll(const std::vector<DeviceBackend>& config);

/// Collective over `record.ranks`. Keys below `store` are those of Python's _new_process_group_helper, so that C++ and
/// Python ranks meet. Where the backend is chosen, it becomes "shm" if all ranks can share memory. Sets the record's group
/// and store. `device_id`: InitOptions::device_id; `plan`: where the ranks of the default group met, for texts.
Group create_group(const c10::intrusive_ptr<c10d::Store>& store, GroupRecord record, int group_rank,
                   std::optional<c10::Device> device_id, const std::optional<RendezvousPlan>& plan = std::nullopt);

/// Ends one group.
void remove_group(const Group& group);
/// Ends all of them, the newest first as in PyTorch, and forgets the job.
void forget_everything();

/// With TORCH_DIST_INIT_BARRIER=1: waits until `count` ranks have come to the group `name`. Follows PyTorch's
/// _store_based_barrier, keys included.
void barrier_after_init(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, int count,
                        std::chrono::milliseconds timeout);

}  // namespace cohort::comm
