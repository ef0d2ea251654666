/// Handles a full disk, a limit on the size of files, and a limit on the number of open files.
#pragma once

#include <cstdint>

#include <string>

#include "cohort/base/error/result.h"

namespace cohort::base {

/// Returns `error` with a hint if `reason` (an errno) says that something has run out: space in `folder`, the limit on the size
/// of files, or the limit on the number of open files.
Error with_space_hint(Error error, int reason, const std::string& folder);

/// Returns an error if `folder`, or the nearest folder above it that exists, has less free space than `num_bytes`. Call it before
/// writing, and before reserving: some file systems reserve piece by piece until the disk is full. `what` names what needs the
/// space.
Result<void> check_space(const std::string& folder, uint64_t num_bytes, const std::string& what);

/// Makes a write beyond the limit on the size of files (ulimit -f) an error (EFBIG), like a write to a full disk. By default it
/// ends the process with SIGXFSZ. Does nothing if the program has set a handler for this signal.
void survive_size_limit();
/// Whether survive_size_limit() has changed the handling of the signal: children get the default again. May be called after a
/// fork.
bool has_size_limit_survived();

}  // namespace cohort::base
