/// Reads traces while others write them, see [Note: reading while others write] in trace_area.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohort/shm/report/group_trace.h"

namespace cohort::shm {

/// Returns the time of CLOCK_MONOTONIC, as in the records.
int64_t monotonic_ns();
/// Returns the difference between the time since the Unix epoch and CLOCK_MONOTONIC.
int64_t wall_clock_offset_ns();

/// Returns the complete records of a rank's area, in order. Any process may call it at any time; it blocks nobody.
std::vector<CallRecord> read_records(const std::byte* area, int64_t clock_offset_ns);

}  // namespace cohort::shm
