/// The variables that tell a rank its place (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR ...): those that are set, and for the
/// others what the scheduler says that started this process (scheduler_environment.h).
///
/// A set variable wins. If RANK or WORLD_SIZE say something else than the scheduler, this process is no task of the
/// scheduler's: a launcher or a person gave it another place, and the scheduler is not asked.
#pragma once

#include <optional>
#include <string>

#include "cohort/rendezvous/scheduler_environment.h"

namespace cohort::rendezvous {

class LaunchEnvironment {
 public:
  /// Reads the environment. `rank` and `world_size` as an argument of init_process_group gives them, else -1.
  explicit LaunchEnvironment(int rank = -1, int world_size = -1);

  /// Nothing if the variable is unset or empty and no scheduler replaces it.
  std::optional<std::string> get(const std::string& name) const;
  /// Cores that the scheduler gave this rank for itself; nothing if it said none.
  std::optional<int> num_cores() const { return is_its_task_ ? scheduler_->num_cores : std::nullopt; }
  /// For the text of an error about a variable that get() lacks: "\n  hint: ..."; empty without a scheduler.
  std::string hint() const;
  /// "MASTER_ADDR and MASTER_PORT", and who filled in what is not set.
  std::string master_source() const;

 private:
  std::optional<std::string> from_scheduler(const std::string& name) const;

  Variables variables_;
  std::optional<SchedulerEnvironment> scheduler_;
  bool is_its_task_ = false;
};

}  // namespace cohort::rendezvous
