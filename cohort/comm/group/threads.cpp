#include "cohort/comm/group/threads.h"

#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

#include "cohort/base/machine/cpu.h"
#include "cohort/base/system/env.h"
#include "cohort/comm/group/world.h"
#include "cohort/rendezvous/environment/launch_environment.h"

namespace cohort::comm {

void apply_default_thread_count(int ranks_on_host) {
  if (base::get_env("OMP_NUM_THREADS") || at::get_num_threads() != at::intraop_default_num_threads()) return;
  const auto& group = world().default_group;
  const auto given =
      rendezvous::LaunchEnvironment(group ? group->getRank() : -1, group ? group->getSize() : -1).num_cores();
  if (given) {
    at::set_num_threads(std::clamp(*given, 1, base::available_cores()));
  } else if (ranks_on_host >= 1) {
    at::set_num_threads(base::default_threads_per_rank(ranks_on_host));
  }
}

}  // namespace cohort::comm
