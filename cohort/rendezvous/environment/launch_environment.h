/// The variables that tell a rank its place (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR ...). Variables that are not set get the
/// values of the scheduler that started this process (scheduler_environment.h).
///
/// A set variable wins. If RANK or WORLD_SIZE differ from the scheduler's values, a launcher or a person has given this process
/// another place, so it is not a task of the scheduler, whose values are then ignored.
#pragma once

#include <optional>
#include <string>

#include "cohort/rendezvous/environment/scheduler_environment.h"

namespace cohort::rendezvous {

class LaunchEnvironment {
 public:
  /// Reads the environment. `rank` and `world_size` are the arguments of init_process_group, or -1 if not given.
  explicit LaunchEnvironment(int rank = -1, int world_size = -1);

  /// Returns nothing if the variable is unset or empty and the scheduler has no value for it.
  std::optional<std::string> get(const std::string& name) const;
  /// The number of cores that the scheduler gave to this rank alone. Absent if it gave no number.
  std::optional<int> num_cores() const { return is_its_task_ ? scheduler_->num_cores : std::nullopt; }
  /// The hint for an error about a variable that get() lacks: "\n  hint: ...". Empty without a scheduler.
  std::string hint() const;
  /// Returns "MASTER_ADDR and MASTER_PORT", and the scheduler that provides unset ones.
  std::string master_source() const;

 private:
  std::optional<std::string> from_scheduler(const std::string& name) const;

  Variables variables_;
  std::optional<SchedulerEnvironment> scheduler_;
  bool is_its_task_ = false;
};

}  // namespace cohort::rendezvous
