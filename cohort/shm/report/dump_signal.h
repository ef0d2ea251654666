/// Dumps on request: a signal handler that only wakes a thread, and the thread, which writes.
#pragma once

namespace cohort::shm {

/// Starts listening to COHORT_TRACE_SIGNAL (default SIGUSR1) unless the program has its own handler or ignores it; the first
/// call decides. The thread stays for the life of the process. A dump says on standard error where it is.
void listen_to_dump_signal() noexcept;

}  // namespace cohort::shm
