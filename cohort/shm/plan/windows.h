/// How a message is cut: into windows that fit the staging slots, and a window into one chunk per rank. Pure arithmetic.
#pragma once

#include <algorithm>
#include <cstddef>

namespace cohort::shm {

/// Small enough for a first-level cache, so that what was read or combined is still there when it is copied on.
constexpr size_t kBlockBytes = 16 << 10;

/// A range of elements.
struct Range {
  size_t begin = 0;
  size_t count = 0;
  size_t end() const { return begin + count; }
};

/// `count` elements in windows of `largest`, the last one shorter. No elements: no window.
struct Windows {
  size_t count = 0;
  size_t largest = 1;
  size_t size() const { return (count + largest - 1) / largest; }
  Range operator[](size_t index) const {
    const auto begin = std::min(count, index * largest);
    return {begin, std::min(largest, count - begin)};
  }
};

/// The chunk of `rank` when `window` is dealt out to `world_size` ranks: equal parts of whole cache lines (of elements of
/// `element_size`, counted from the window's begin), so that the last ranks get less or nothing.
inline Range chunk_of(const Range& window, int rank, int world_size, size_t element_size) {
  const auto ranks = static_cast<size_t>(world_size);
  const auto line = std::max<size_t>(1, 64 / element_size);
  const auto part = ((window.count + ranks - 1) / ranks + line - 1) / line * line;
  const auto begin = std::min(window.count, static_cast<size_t>(rank) * part);
  return {window.begin + begin, std::min(part, window.count - begin)};
}

}  // namespace cohort::shm
