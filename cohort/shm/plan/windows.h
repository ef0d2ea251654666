/// Splits a message into windows that fit the staging slots, and a window into one chunk per rank. Pure arithmetic.
#pragma once

#include <algorithm>
#include <cstddef>

namespace cohort::shm {

/// Small enough for a first-level cache, so that data that were read or combined are still there when they are copied.
constexpr size_t kBlockBytes = 16 << 10;

/// A range of elements.
struct Range {
  size_t begin = 0;
  size_t count = 0;
  size_t end() const { return begin + count; }
};

/// Splits `count` elements into windows of `largest`, the last one shorter. Without elements there is no window.
struct Windows {
  size_t count = 0;
  size_t largest = 1;
  size_t size() const { return (count + largest - 1) / largest; }
  Range operator[](size_t index) const {
    const auto begin = std::min(count, index * largest);
    return {begin, std::min(largest, count - begin)};
  }
};

/// Returns the chunk of `rank` when `window` is split over `world_size` ranks: equal parts of complete cache lines (of elements
/// of `element_size`, counted from the window's begin), so the last ranks get less or nothing.
inline Range chunk_of(const Range& window, int rank, int world_size, size_t element_size) {
  const auto ranks = static_cast<size_t>(world_size);
  const auto line = std::max<size_t>(1, 64 / element_size);
  const auto part = ((window.count + ranks - 1) / ranks + line - 1) / line * line;
  const auto begin = std::min(window.count, static_cast<size_t>(rank) * part);
  return {window.begin + begin, std::min(part, window.count - begin)};
}

}  // namespace cohort::shm
