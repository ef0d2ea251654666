/// Free ranges of an address space: best fit, lowest address first; adjacent ranges are joined. Pure arithmetic.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace cohort::shm {

/// A range of bytes.
struct Extent {
  size_t begin = 0;
  size_t bytes = 0;
};

/// Not thread-safe.
class FreeRanges {
 public:
  /// Adds a range, which must not overlap a free one.
  void add(Extent range);
  /// Takes `bytes` and returns where they begin; nothing if no range is long enough.
  std::optional<size_t> take(size_t bytes);
  /// Takes the end of the longest range, at most `most` bytes. Empty if there is no range.
  Extent take_from_longest(size_t most);
  /// The number of free bytes.
  size_t bytes() const { return bytes_; }
  /// Whether adjacent ranges of `a` and `b` together would hold `bytes`. Takes time linear in their number.
  friend bool would_fit_joined(const FreeRanges& a, const FreeRanges& b, size_t bytes);

 private:
  using ByBegin = std::map<size_t, size_t>;
  void insert(Extent range);
  void erase(ByBegin::iterator range);

  ByBegin by_begin_;
  std::set<std::pair<size_t, size_t>> by_bytes_;  ///< bytes, begin
  size_t bytes_ = 0;
};

bool would_fit_joined(const FreeRanges& a, const FreeRanges& b, size_t bytes);

}  // namespace cohort::shm
