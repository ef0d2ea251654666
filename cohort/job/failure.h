/// Failures of operations, their texts, and how ranks hand them to each other through the store. Pure functions.
#pragma once

#include <chrono>
#include <string>

#include "cohort/base/error/failure.h"
#include "cohort/job/operation.h"

namespace cohort::job {

using base::Failure;

/// The same failure, with `operation` as what failed and where.
Failure failure_of(const Operation& operation, Failure failure);
/// Of a wait() whose own limit is over while the operation goes on.
Failure wait_timed_out(const Operation& operation, std::chrono::milliseconds timeout);

/// What failed, where, why (one line per cause), what is to be added, what to do next:
///     [cohort] all_reduce #5 on group "dp" failed
///       rank 3 of 8 on node-a, backend gloo, 25.0 MiB float32
///       caused by: rank 5 (pid 71234 on node-a) is gone
///       hint: look at the output of rank 5 for the reason
std::string failure_text(const Failure& failure);

/// One line per part, none of them empty; a newline ends the last.
std::string encode_failure(const Failure& failure);
/// Reads up to the end or the first empty line. Never throws: what cannot be read is left out.
Failure decode_failure(const std::string& text);

}  // namespace cohort::job
