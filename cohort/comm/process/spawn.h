/// spawn: run one function as several ranks, each a process of its own. Follows torch/multiprocessing/spawn.py.
///
/// The ranks are forked, so `fn` may capture anything the program has built so far, tensors in shared memory among it
/// (share_memory.h). Threads do not survive a fork, so call spawn before the first parallel tensor operation: a process that
/// already has other threads is refused, by name.
#pragma once

#include <functional>

#include "cohort/comm/process/process_context.h"
#include "cohort/export.h"

namespace cohort {

/// Runs fn(0) ... fn(nprocs - 1), each in a new process, and waits for all of them.
/// The first failure ends the others (SIGTERM, after 30 s SIGKILL) and is thrown. No rank outlives the caller.
/// Unless OMP_NUM_THREADS is set, each rank's LibTorch uses cores / nprocs threads.
/// SIGCHLD, where it is ignored, gets its default action.
/// Throws std::invalid_argument if nprocs < 1, std::runtime_error if the process already has other threads.
COHORT_API void spawn(const std::function<void(int)>& fn, int nprocs = 1);

/// The same; with `join` false it returns as soon as the ranks run. The context's destructor ends those that still run.
/// From here on the caller may have threads of its own, but no rank outlives the thread that called spawn.
[[nodiscard]] COHORT_API ProcessContext spawn(const std::function<void(int)>& fn, int nprocs, bool join);

}  // namespace cohort
