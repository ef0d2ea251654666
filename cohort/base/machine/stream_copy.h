/// Copies to memory that will not be read soon, past the caches. A copy of a state through the cache would evict what the next
/// step needs, and each store would read its cache line first: three trips over the memory bus instead of two.
#pragma once

#include <cstddef>

namespace cohort::base {

/// Copies as memcpy does.
void stream_copy(std::byte* to, const std::byte* from, size_t num_bytes);

}  // namespace cohort::base
