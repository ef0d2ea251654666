/// Pinned host memory: copies between it and a device do not wait for the device. A freed block waits for the copies that use it,
/// and is then filled with 0xFF.
#pragma once

#include <c10/core/Allocator.h>

#include "tests/support/sim_device/queue.h"

namespace cohort::sim {

c10::Allocator* pinned_allocator();
bool is_pinned(const void* pointer);
/// `mark`: the copy that uses it. Requires pinned memory.
void record_pinned_use(const void* pointer, Mark mark);

}  // namespace cohort::sim
