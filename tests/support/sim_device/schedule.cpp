#include "tests/support/sim_device/schedule.h"

#include <c10/util/Exception.h>

#include <mutex>

namespace cohort::sim {
namespace {

std::mutex schedule_mutex;
Schedule schedule_in_force;

}  // namespace

Schedule schedule_named(const std::string& name) {
  if (name == "eager") return {};
  if (name == "late-default") return {.default_is_late = true};
  if (name == "late-sides") return {.sides_are_late = true};
  TORCH_CHECK_VALUE(name == "mixed", "no schedule \"", name, "\"; there are eager, late-default, late-sides and mixed");
  return {.every_other_is_late = true};
}

void set_schedule(const Schedule& wanted) {
  const std::lock_guard lock(schedule_mutex);
  schedule_in_force = wanted;
}

Schedule current_schedule() {
  const std::lock_guard lock(schedule_mutex);
  return schedule_in_force;
}

}  // namespace cohort::sim
