/// Byte arithmetic.
#pragma once

#include <cstddef>
#include <cstring>

namespace cohort::shm {

inline const std::byte* at(const void* memory, size_t offset) { return static_cast<const std::byte*>(memory) + offset; }
inline std::byte* at(void* memory, size_t offset) { return static_cast<std::byte*>(memory) + offset; }

/// Does nothing for the same address, or for no bytes (the pointers may then be null).
inline void copy_bytes(void* to, const void* from, size_t num_bytes) {
  if (to != from && num_bytes > 0) std::memcpy(to, from, num_bytes);
}

/// Whether the parts of `num_bytes` each are contiguous in memory.
inline bool are_adjacent(const void* const* parts, size_t num_bytes, int num_parts) {
  for (int i = 1; i < num_parts; ++i) {
    if (parts[i] != at(parts[0], static_cast<size_t>(i) * num_bytes)) return false;
  }
  return true;
}

inline bool do_overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < at(b, b_bytes) && b < at(a, a_bytes);
}

}  // namespace cohort::shm
