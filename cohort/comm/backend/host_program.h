/// Services for a host program, such as a Python interpreter, while operations wait for other ranks: it can interrupt them, as
/// Ctrl-C does, and go on meanwhile.
#pragma once

#include <exception>

#include "cohort/export.h"

namespace cohort::comm {

/// Called about four times a second while an operation of backend "shm" waits, in the thread that runs it. If it returns an
/// exception, the operation and its group end, and the caller gets the exception. If null (the default), nothing is called.
using Interruption = std::exception_ptr (*)();
COHORT_BINDING_API void set_interruption(Interruption interruption);

/// Returns the exception that should end the calling thread's wait, or null.
std::exception_ptr find_interruption();
/// Throws that exception, if it is not null.
void throw_interruption();

/// The lock of an interpreter. The calling thread may hold it where PyTorch's bindings do not release it, as in
/// Work.get_future(). `release` returns the state that `acquire` needs, or null if the thread does not hold the lock.
struct HostLock {
  void* (*release)();
  void (*acquire)(void* state);
};
COHORT_BINDING_API void set_host_lock(const HostLock& lock);

/// Releases the host's lock in the calling thread as long as it lives.
class HostUnlocked {
 public:
  HostUnlocked();
  ~HostUnlocked();
  HostUnlocked(const HostUnlocked&) = delete;

 private:
  void* const state_;
};

}  // namespace cohort::comm
