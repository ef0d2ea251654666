/// Checks whether this process may share memory.
#pragma once

#include <string>

namespace cohort::job {

/// Tries the steps of joining a group on a small scale. Returns the step that failed and the reason, such as "memfd_create:
/// Operation not permitted (EPERM)", or an empty text.
std::string find_shm_obstacle();

}  // namespace cohort::job
