/// How many threads LibTorch uses inside one rank.
#pragma once

namespace cohort::comm {

/// Sets LibTorch's thread count to the cores that a scheduler gave this rank, else to cores / `ranks_on_host` (0: not known),
/// unless OMP_NUM_THREADS is set or the program chose one itself.
void apply_default_thread_count(int ranks_on_host);

}  // namespace cohort::comm
