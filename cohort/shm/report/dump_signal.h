/// Dumps on request: a signal handler that only wakes a thread, which then writes.
#pragma once

namespace cohort::shm {

/// Starts listening to COHORT_TRACE_SIGNAL (default SIGUSR1) unless the program handles or ignores it; the first call decides.
/// The thread lives as long as the process. A dump prints its path to standard error.
void listen_to_dump_signal() noexcept;

}  // namespace cohort::shm
