/// The sessions of this process that are open, for its end.
#pragma once

#include <cstddef>

namespace cohort::comm {

class ShmSession;

/// Thread-safe, as all here.
void add_open_session(ShmSession& session);
/// Without effect on one that is not open.
void remove_open_session(ShmSession& session);

/// Operations of this process on the backend "shm" that have not ended.
size_t num_pending_shm_operations();
/// At exit: ends them with an error, and their threads.
void end_shm_operations();
/// The same for groups without operations too. Returns: how many there were.
size_t end_shm_threads();

}  // namespace cohort::comm
