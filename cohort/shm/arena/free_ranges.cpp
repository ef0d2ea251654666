#include "cohort/shm/arena/free_ranges.h"

#include <algorithm>
#include <iterator>

namespace cohort::shm {

void FreeRanges::insert(Extent range) {
  by_begin_.emplace(range.begin, range.bytes);
  by_bytes_.emplace(range.bytes, range.begin);
  bytes_ += range.bytes;
}

void FreeRanges::erase(ByBegin::iterator range) {
  by_bytes_.erase({range->second, range->first});
  bytes_ -= range->second;
  by_begin_.erase(range);
}

void FreeRanges::add(Extent range) {
  if (range.bytes == 0) return;
  auto next = by_begin_.lower_bound(range.begin);
  if (next != by_begin_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == range.begin) {
      range = {before->first, before->second + range.bytes};
      erase(before);
    }
  }
  if (next != by_begin_.end() && range.begin + range.bytes == next->first) {
    range.bytes += next->second;
    erase(next);
  }
  insert(range);
}

std::optional<size_t> FreeRanges::take(size_t bytes) {
  const auto found = by_bytes_.lower_bound({bytes, 0});
  if (found == by_bytes_.end()) return std::nullopt;
  const auto [length, begin] = *found;
  erase(by_begin_.find(begin));
  if (length > bytes) insert({begin + bytes, length - bytes});
  return begin;
}

Extent FreeRanges::take_from_longest(size_t most) {
  if (by_bytes_.empty() || most == 0) return {};
  const auto [length, begin] = *by_bytes_.rbegin();
  erase(by_begin_.find(begin));
  const auto taken = std::min(length, most);
  if (length > taken) insert({begin, length - taken});
  return {begin + length - taken, taken};
}

bool would_fit_joined(const FreeRanges& a, const FreeRanges& b, size_t bytes) {
  auto one = a.by_begin_.begin();
  auto other = b.by_begin_.begin();
  Extent joined;
  while (one != a.by_begin_.end() || other != b.by_begin_.end()) {
    const bool takes_one = other == b.by_begin_.end() || (one != a.by_begin_.end() && one->first < other->first);
    const auto [begin, length] = takes_one ? *one++ : *other++;
    joined = joined.begin + joined.bytes == begin ? Extent{joined.begin, joined.bytes + length} : Extent{begin, length};
    if (joined.bytes >= bytes) return true;
  }
  return false;
}

}  // namespace cohort::shm
