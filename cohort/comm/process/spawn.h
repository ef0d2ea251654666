/// spawn: runs one function as several ranks, each in a process of its own. Follows torch/multiprocessing/spawn.py.
///
/// The ranks are forked, so `fn` may capture anything that the program has built so far, such as tensors in shared memory
/// (share_memory.h). Threads do not survive a fork, so call spawn before the first parallel tensor operation: it refuses a
/// process that already has other threads, and names them.
#pragma once

#include <functional>

#include "cohort/comm/process/process_context.h"
#include "cohort/export.h"

namespace cohort {

/// Runs fn(0) ... fn(nprocs - 1), each in a new process, and waits for all of them.
/// After the first failure, ends the others (SIGTERM, after 30 s SIGKILL) and throws it. No rank outlives the caller.
/// Unless OMP_NUM_THREADS is set, each rank's LibTorch uses cores / nprocs threads.
/// Gives SIGCHLD its default action if it is ignored.
/// Throws std::invalid_argument if nprocs < 1, std::runtime_error if the process already has other threads.
COHORT_API void spawn(const std::function<void(int)>& fn, int nprocs = 1);

/// As above. If `join` is false, returns as soon as the ranks run. The context's destructor ends ranks that still run.
/// Afterwards the caller may start threads, but no rank outlives the thread that called spawn.
[[nodiscard]] COHORT_API ProcessContext spawn(const std::function<void(int)>& fn, int nprocs, bool join);

}  // namespace cohort
