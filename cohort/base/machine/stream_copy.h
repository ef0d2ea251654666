/// Copies to memory that will not be read soon, past the caches: a state's bytes would push out what the next step needs, and a
/// store through the cache reads the line first, which makes three trips over the memory bus instead of two.
#pragma once

#include <cstddef>

namespace cohort::base {

/// As memcpy.
void stream_copy(std::byte* to, const std::byte* from, size_t num_bytes);

}  // namespace cohort::base
