/// The number of threads that LibTorch uses within one rank.
#pragma once

namespace cohort::comm {

/// Sets LibTorch's thread count to the cores that a scheduler gave this rank, otherwise to cores / `ranks_on_host` (0 means not
/// known). Does nothing if OMP_NUM_THREADS is set or the program has chosen a number.
void apply_default_thread_count(int ranks_on_host);

}  // namespace cohort::comm
