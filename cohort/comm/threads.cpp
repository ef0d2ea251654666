#include "cohort/comm/threads.h"

#include <ATen/Parallel.h>

#include "cohort/base/cpu.h"
#include "cohort/base/env.h"

namespace cohort::comm {

void apply_default_thread_count(int ranks_on_host) {
  if (ranks_on_host < 1 || base::get_env("OMP_NUM_THREADS")) return;
  if (at::get_num_threads() != at::intraop_default_num_threads()) return;
  at::set_num_threads(base::default_threads_per_rank(ranks_on_host));
}

}  // namespace cohort::comm
