#include "cohort/comm/shm/session/running_operation.h"

#include <fmt/format.h>

#include "cohort/base/log/log.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/backend/host_program.h"

namespace cohort::comm {

RunningOperation::RunningOperation(const ShmIdentity& identity, OperationWatch* watch)
    : identity_(identity), watch_(watch), find_obstacle_([this] { return find_obstacle(); }) {}

// Called by the engine, in the thread that runs the operation.
std::string RunningOperation::find_obstacle() {
  interruption_ = find_interruption();
  if (interruption_) {
    was_interrupted_ = true;
    return "interrupted by a signal while it waited";
  }
  if (is_completing_ && ++num_looks_while_completing_ == kLooksBeforeWarning) warn_of_long_wait();
  if (!watch_) return {};
  const auto operation = describe(*call_, shown_, identity_);
  if (delayed_ != operation.sequence) watch_->delayed(operation);
  delayed_ = operation.sequence;
  return watch_->find_obstacle(operation);
}

void RunningOperation::warn_of_long_wait() const {
  base::log_warning(fmt::format(
      "group \"{}\" is to be destroyed, and waits for {} #{}, which was started and which nobody waited for; the other "
      "ranks have not all called it. It waits for {} at most. Call wait() on every Work before "
      "destroy_process_group().",
      identity_.group, call_->operation->name, call_->sequence, base::format_duration(*options_->timeout)));
}

}  // namespace cohort::comm
