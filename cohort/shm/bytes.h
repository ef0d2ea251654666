/// Byte arithmetic.
#pragma once

#include <cstddef>
#include <cstring>

namespace cohort::shm {

inline const std::byte* at(const void* memory, size_t offset) { return static_cast<const std::byte*>(memory) + offset; }
inline std::byte* at(void* memory, size_t offset) { return static_cast<std::byte*>(memory) + offset; }

/// Nothing to do for the same place, nor for no bytes (then the pointers may be null).
inline void copy_bytes(void* to, const void* from, size_t num_bytes) {
  if (to != from && num_bytes > 0) std::memcpy(to, from, num_bytes);
}

}  // namespace cohort::shm
