/// Reading traces that others write, see [Note: reading while others write] in trace_area.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohort/shm/report/group_trace.h"

namespace cohort::shm {

/// CLOCK_MONOTONIC, as in the records.
int64_t monotonic_ns();
/// To add to CLOCK_MONOTONIC to get the time since the Unix epoch.
int64_t wall_clock_offset_ns();

/// The records of a rank's area that are whole, in order. Any process, any time; nobody waits for anybody.
std::vector<CallRecord> read_records(const std::byte* area, int64_t clock_offset_ns);

}  // namespace cohort::shm
