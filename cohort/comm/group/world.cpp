#include "cohort/comm/group/world.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace cohort::comm {

World& world() {
  static auto* const instance = new World;
  return *instance;
}

const GroupRecord* World::find(const Group& group) const {
  const auto wanted = group ? group : cohort::default_group();
  for (const auto& record : groups) {
    if (record.group == wanted) return &record;
  }
  return nullptr;
}

const GroupRecord& record_of(const Group& group) {
  const auto* record = world().find(group);
  TORCH_CHECK_VALUE(record, "Invalid process group specified");
  return *record;
}

}  // namespace cohort::comm
