/// What a host program such as a Python interpreter needs of operations that wait for other ranks: to end them, as on Ctrl-C,
/// and to go on meanwhile.
#pragma once

#include <exception>

#include "cohort/export.h"

namespace cohort::comm {

/// Looked at while an operation of backend "shm" waits, in the thread that runs it, about four times a second: an exception ends
/// the operation and its group, and is what the caller gets. Null: nothing is looked at (the default).
using Interruption = std::exception_ptr (*)();
COHORT_BINDING_API void set_interruption(Interruption interruption);

/// What the calling thread is to end its wait with; null if there is nothing.
std::exception_ptr find_interruption();
/// Throws it, if there is anything.
void throw_interruption();

/// The lock of an interpreter that the calling thread may hold where PyTorch's bindings do not let go of it, as they do not
/// around Work.get_future(). `release` gives back what `acquire` needs, null if the thread does not hold it.
struct HostLock {
  void* (*release)();
  void (*acquire)(void* state);
};
COHORT_BINDING_API void set_host_lock(const HostLock& lock);

/// While it lives the calling thread does not hold the host's lock.
class HostUnlocked {
 public:
  HostUnlocked();
  ~HostUnlocked();
  HostUnlocked(const HostUnlocked&) = delete;

 private:
  void* const state_;
};

}  // namespace cohort::comm
