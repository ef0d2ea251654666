// The program of docs/guide/memory.md (tests/tools/guide_test.py compares them), run by two ranks.
#include <cohort/comm/collectives/collectives.h>
#include <cohort/comm/group/process_group.h>
#include <cohort/comm/memory/shared_allocator.h>

#include <ATen/ATen.h>

#include "guide.h"

namespace guide {

void run_memory() {
  cohort::comm::use_shared_allocator();  // before the model, and before the group
  cohort::init_process_group();
  at::Tensor gradient = at::full({1 << 20}, 1.0 + cohort::get_rank());
  cohort::all_reduce(gradient);  // in place, without a staging copy
  const cohort::comm::SharedAllocatorStats stats = cohort::comm::shared_allocator_stats();
  TORCH_CHECK(cohort::comm::has_shared_allocator() && stats.used_bytes == size_t{4} << 20);
  gradient.reset();
  cohort::comm::empty_shared_allocator_cache();  // as torch.cuda.empty_cache(), rarely needed
  cohort::destroy_process_group();
}

}  // namespace guide
