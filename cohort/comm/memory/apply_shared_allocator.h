/// Decides whether this process uses the shared allocator, when a group is made and when Python imports torchcohort.
#pragma once

#include "cohort/export.h"

namespace cohort::comm {

/// Installs the allocator if `is_wanted`, if COHORT_SHARED_ALLOCATOR asks for it, or in a fork of a process that had it.
/// Throws c10::ValueError for a malformed variable, and as use_shared_allocator().
COHORT_BINDING_API void apply_shared_allocator(bool is_wanted);

/// Calls shm::Group::set_staged_bytes().
COHORT_TEST_API void set_staged_bytes(size_t num_bytes);

}  // namespace cohort::comm
