/// World: the process groups that this process has made, and the job it is in. There is one, in libcohort.so, never destroyed
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
  std::string description;            ///< "default_pg"; what errors show
  std::string backend;                ///< "gloo", as it was asked for or chosen
  bool is_backend_chosen = false;     ///< nobody asked for one
  std::vector<DeviceBackend> config;  ///< what that stands for
  std::vector<int> ranks;             ///< default-group ranks, in group order
  std::chrono::milliseconds timeout;
  std::shared_ptr<OperationWatch> watch;
  mutable int num_splits = 0;  ///< how often split_group cut it
  bool is_released = false;    ///< nobody here needs it but who may hold it
  /// All its ranks have made it, as they have met in a later group. Before that, to end it may break off another rank's connect.
  bool is_made_everywhere = false;
};

struct World {
  /// In the order they were made; the default group is the first.
  std::vector<GroupRecord> groups;
  Group default_group;
  /// Number of the next group, which is its name, as in PyTorch; goes back to 0 when all groups are destroyed.
  int group_count = 0;
  /// How many groups were made by local synchronisation, by their ranks; kept for names that no earlier group has had.
  std::map<std::vector<int>, int> num_local_groups;
  /// Of the job that init_process_group has joined.
  std::shared_ptr<Roster> roster;
  /// Where the last default group met, if at its rank 0 (place_of_rank_0()); stays when it is destroyed.
  std::string last_place;

  /// Null when `group` is unknown; null `group` is the default group. Throws c10::ValueError before init_process_group.
  const GroupRecord* find(const Group& group) const;
};

World& world();

/// The record of `group`. Throws c10::ValueError when it is not one of this process's groups.
const GroupRecord& record_of(const Group& group);

/// Arranges a clean exit whatever the user forgets; called by init_process_group, effective once.
void install_exit_handlers();

}  // namespace cohort::comm
