/// Failures of operations, their texts, and their encoding for the store, through which ranks pass them on. Pure functions.
#pragma once

#include <chrono>
#include <string>

#include "cohort/base/error/failure.h"
#include "cohort/job/operation.h"

namespace cohort::job {

using base::Failure;

/// Returns the same failure, with `operation` as the operation that failed.
Failure failure_of(const Operation& operation, Failure failure);
/// Returns the failure of a wait() whose own timeout is over while the operation goes on.
Failure wait_timed_out(const Operation& operation, std::chrono::milliseconds timeout);

/// Returns the text: what failed, where, why (one line per cause), a note, and the next step:
///     [cohort] all_reduce #5 on group "dp" failed
///       rank 3 of 8 on node-a, backend gloo, 25.0 MiB float32
///       caused by: rank 5 (pid 71234 on node-a) is gone
///       hint: look at the output of rank 5 for the reason
std::string failure_text(const Failure& failure);

/// Returns one line per part, none of them empty; a newline ends the last.
std::string encode_failure(const Failure& failure);
/// Reads up to the end or the first empty line. Never throws; ignores malformed lines.
Failure decode_failure(const std::string& text);

}  // namespace cohort::job
