/// Handles a full disk, a limit on the size of files, and a limit on open files.
#pragma once

#include <cstdint>

#include <string>

#include "cohort/base/error/result.h"

namespace cohort::base {

/// `error` with a hint that says what has run out, where it is something that has: the room in `folder`, the limit on the size of
/// files, or the one on open files.
Error with_room_hint(Error error, int reason, const std::string& folder);

/// An error where `folder`, or the folder that will hold it, has no room for so many bytes. Asked before anything is written, and
/// before a file system is asked for room, which some take piece by piece until the disk is full. `what`: what needs it.
Result<void> check_room(const std::string& folder, uint64_t num_bytes, const std::string& what);

/// A write beyond the limit on the size of files (ulimit -f) is an error (EFBIG) from now on, like one to a full disk; by default
/// it ends the process by SIGXFSZ. Does nothing where the program has chosen what the signal does.
void survive_size_limit();
/// Whether survive_size_limit() has changed what the signal does: children have the default again. May be called after a fork.
bool has_size_limit_survived();

}  // namespace cohort::base
