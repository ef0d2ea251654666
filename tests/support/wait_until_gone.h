/// Waits for the end of a process that is not our child.
#pragma once

#include <poll.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>

#include "cohort/base/file/file.h"

namespace cohort::test {

/// True once the process has ended (as a zombie or altogether); false if it still runs after `limit`.
inline bool wait_until_gone(pid_t pid, std::chrono::milliseconds limit = std::chrono::seconds(100)) {
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) return true;
  pollfd entry{pidfd.get(), POLLIN, 0};
  return ::poll(&entry, 1, static_cast<int>(limit.count())) == 1;
}

}  // namespace cohort::test
