/// Free ranges of an address space: best fit, lowest address first; neighbours are joined. Pure arithmetic.
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
  /// The range must overlap no free one.
  void add(Extent range);
  /// Where `bytes` begin that are free no longer; nullopt: no range is as long.
  std::optional<size_t> take(size_t bytes);
  /// The end of the longest range, at most `most` bytes of it, which is free no longer. Empty: there is none.
  Extent take_from_longest(size_t most);
  /// All free bytes.
  size_t bytes() const { return bytes_; }
  /// Whether ranges of `a` and `b` that lie beside each other would hold `bytes` together. Linear in their number.
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
