/// World: the process groups that this process has made, and the job it is in. libcohort.so has one, which is never destroyed
/// (see process_exit.cpp).
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/comm/group/roster.h"
#include "cohort/comm/registry/backend_config.h"
#include "cohort/comm/watch/operation_watch.h"

namespace cohort::comm {

struct GroupRecord {
  Group group;
  c10::intrusive_ptr<c10d::Store> store;
  std::string name;                   ///< "0"; also the prefix of its keys
  std::string description;            ///< "default_pg"; used in errors
  std::string backend;                ///< "gloo"; as requested or chosen
  bool is_backend_chosen = false;     ///< whether Cohort chose the backend
  std::vector<DeviceBackend> config;  ///< the backend of each device
  std::vector<int> ranks;             ///< default-group ranks, in group order
  std::chrono::milliseconds timeout;
  std::shared_ptr<OperationWatch> watch;
  mutable int num_splits = 0;  ///< how often split_group has split it
  bool is_released = false;    ///< whether only its holders need it
  /// Whether all its ranks have made it, because they have met in a later group. To end it earlier could break another rank's
  /// connect.
  bool is_made_everywhere = false;
};

struct World {
  /// All groups, in the order of their creation; the default group is the first.
  std::vector<GroupRecord> groups;
  Group default_group;
  /// The number of the next group, which is its name, as in PyTorch; 0 again after all groups are destroyed.
  int group_count = 0;
  /// The number of groups that local synchronization has made, by their ranks; kept so that every name is used once.
  std::map<std::vector<int>, int> num_local_groups;
  /// The members of the job that init_process_group has joined.
  std::shared_ptr<Roster> roster;
  /// The meeting place of the last default group, if at its rank 0 (place_of_rank_0()); kept after the group is destroyed.
  std::string last_place;

  /// Returns null if `group` is unknown. A null `group` is the default group. Throws c10::ValueError before init_process_group.
  const GroupRecord* find(const Group& group) const;
};

World& world();

/// Returns the record of `group`. Throws c10::ValueError if it is not one of this process's groups.
const GroupRecord& record_of(const Group& group);

/// Ensures a clean exit whatever the user forgets. Called by init_process_group; a second call does nothing.
void install_exit_handlers();

}  // namespace cohort::comm
