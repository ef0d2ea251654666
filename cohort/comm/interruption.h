/// How a host program ends an operation that waits for other ranks, as Python does on Ctrl-C.
#pragma once

#include <exception>

#include "cohort/export.h"

namespace cohort::comm {

/// Looked at while an operation of backend "shm" waits, in the thread that runs it, about four times a second: an exception ends
/// the operation and its group, and is what the caller gets. Null: nothing is looked at (the default).
using Interruption = std::exception_ptr (*)();
COHORT_API void set_interruption(Interruption interruption);

/// What the calling thread is to end its wait with; null if there is nothing.
std::exception_ptr find_interruption();
/// Throws it, if there is anything.
void throw_interruption();

}  // namespace cohort::comm
