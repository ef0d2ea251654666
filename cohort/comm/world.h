/// World: the process groups of this process. There is one, in libcohort.so, never destroyed (see process_exit.cpp).
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/peers.h"
#include "cohort/comm/process_group.h"

namespace cohort::comm {

struct GroupRecord {
  Group group;
  c10::intrusive_ptr<c10d::Store> store;
  std::string name;
  std::string backend;
  std::vector<int> ranks;  ///< default-group ranks, in group order
  std::chrono::milliseconds timeout;
};

struct World {
  /// By number, which is also the name PyTorch gives them; the default group is 0.
  std::map<int, GroupRecord> groups;
  Group default_group;
  /// Number of the next group; goes back to 0 when all groups are destroyed, as in PyTorch.
  int group_count = 0;
  std::shared_ptr<Peers> peers;

  /// Null when `group` is unknown; null `group` is the default group. Throws c10::ValueError before init_process_group.
  const GroupRecord* find(const Group& group) const;
};

World& world();

/// The record of `group`. Throws c10::ValueError when it is not one of this process's groups.
const GroupRecord& record_of(const Group& group);

/// Arranges a clean exit whatever the user forgets; called by init_process_group, effective once.
void install_exit_handlers();

}  // namespace cohort::comm
