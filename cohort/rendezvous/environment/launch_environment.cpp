#include "cohort/rendezvous/environment/launch_environment.h"

#include <unistd.h>

#include <cerrno>

#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/rendezvous/environment/mpi_proxy.h"

namespace cohort::rendezvous {
namespace {

// Whether this process's place, as far as it is known, is the one that the scheduler gave it.
bool agrees(const std::optional<int>& said, int given, const Variables& variables, const char* name) {
  if (given >= 0) return said == given;
  const auto found = variables.find(name);
  if (found == variables.end() || found->second.empty()) return true;
  const auto value = base::parse_int(base::trim(found->second));
  return value && said == value;
}

std::optional<std::string> as_text(const std::optional<int>& value) {
  return value ? std::optional(std::to_string(*value)) : std::nullopt;
}

}  // namespace

LaunchEnvironment::LaunchEnvironment(int rank, int world_size)
    : variables_(base::environment()), scheduler_(read_scheduler(variables_)) {
  if (!scheduler_) return;
  // Kubernetes does not know the number of tasks.
  is_its_task_ = scheduler_->rank && agrees(scheduler_->rank, rank, variables_, "RANK") &&
                 (!scheduler_->world_size || agrees(scheduler_->world_size, world_size, variables_, "WORLD_SIZE"));
  if (is_its_task_ && !scheduler_->port && scheduler_->is_one_host()) {
    scheduler_->port = port_of_mpi_proxy(::getpid());
  }
}

std::optional<std::string> LaunchEnvironment::get(const std::string& name) const {
  const auto found = variables_.find(name);
  if (found != variables_.end() && !found->second.empty()) return found->second;
  return is_its_task_ ? from_scheduler(name) : std::nullopt;
}

std::optional<std::string> LaunchEnvironment::from_scheduler(const std::string& name) const {
  if (name == "RANK") return as_text(scheduler_->rank);
  if (name == "WORLD_SIZE") return as_text(scheduler_->world_size);
  if (name == "LOCAL_RANK") return as_text(scheduler_->local_rank);
  if (name == "LOCAL_WORLD_SIZE") return as_text(scheduler_->local_world_size);
  if (name == "MASTER_ADDR" && !scheduler_->first_host.empty()) return scheduler_->first_host;
  if (name == "MASTER_PORT") return as_text(scheduler_->port);
  return std::nullopt;
}

std::string LaunchEnvironment::hint() const {
  if (!scheduler_) {
    return std::string("\n  hint: start this program by a launcher, as in `cohort run --nproc-per-node 2 ") +
           program_invocation_name + "`, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
  }
  if (scheduler_->rank && !is_its_task_) {
    return "\n  hint: this process is " + scheduler_->found +
           ", but RANK or WORLD_SIZE say something else; unset them, or set all four: RANK, WORLD_SIZE, MASTER_ADDR "
           "and "
           "MASTER_PORT";
  }
  if (!scheduler_->gap.empty()) return "\n  hint: " + scheduler_->gap;
  return "\n  hint: this process is " + scheduler_->found + ", which does not tell it";
}

std::string LaunchEnvironment::master_source() const {
  std::string source = "MASTER_ADDR and MASTER_PORT";
  const auto is_set = [&](const char* name) {
    const auto found = variables_.find(name);
    return found != variables_.end() && !found->second.empty();
  };
  if (is_its_task_ && !(is_set("MASTER_ADDR") && is_set("MASTER_PORT"))) {
    source += " (filled in from " + scheduler_->name + " where unset)";
  }
  return source;
}

}  // namespace cohort::rendezvous
