/// Whether this process is allowed to share memory at all.
#pragma once

#include <string>

namespace cohort::job {

/// Tries what joining a group takes, in small. Returns: what failed and why, such as "memfd_create: Operation not permitted
/// (EPERM)", or an empty text.
std::string find_shm_obstacle();

}  // namespace cohort::job
