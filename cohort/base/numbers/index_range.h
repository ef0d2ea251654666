/// Ranges of indices along a tensor's dimensions: the shards of meshes and of files.
#pragma once

#include <cstdint>
#include <vector>

namespace cohort::base {

/// Indices of a dimension from `begin` up to but not including `end`.
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};
/// Ranges in the order in which the shard has them. No range is empty.
using IndexRanges = std::vector<IndexRange>;

/// The sum of the ranges' sizes.
inline int64_t num_indices(const IndexRanges& ranges) {
  int64_t sum = 0;
  for (const auto& range : ranges) sum += range.size();
  return sum;
}

}  // namespace cohort::base
