/// Region: the elements of a tensor in a shard, and operations on two such parts. Pure.
///
/// A region is a list of index ranges per dimension. Its elements are all combinations of those indices, in the order in which
/// the shard has them, row by row. A box has one range per dimension; a part with gaps (StridedShard) has more.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/numbers/index_range.h"

namespace cohort::files {

using base::IndexRange;
using base::IndexRanges;

/// One list per dimension. A scalar has no dimensions, and one element.
using Region = std::vector<IndexRanges>;

Region whole_region(const std::vector<int64_t>& shape);
/// Returns a box. Requires as many lengths as offsets.
Region box_region(const std::vector<int64_t>& offsets, const std::vector<int64_t>& lengths);
/// Returns the shape of a tensor that holds the region.
std::vector<int64_t> shape_of(const Region& region);
int64_t num_elements(const Region& region);
int64_t num_elements(const std::vector<int64_t>& shape);
bool overlaps(const Region& a, const Region& b);
/// Whether each element of `inner` is one of `outer`. Both must have ranges in ascending order.
bool contains(const Region& outer, const Region& inner);
/// Returns its boxes, one for each combination of ranges, in order. An empty region has none.
std::vector<Region> boxes_of(const Region& region);
/// Returns "[0:4, 2:3+6:8]".
std::string region_text(const Region& region);
/// Returns an error if `region` does not fit a tensor of `shape`: number of dimensions, bounds, ranges that are empty or not in
/// ascending order.
base::Result<void> check_region(const Region& region, const std::vector<int64_t>& shape);

/// Consecutive elements in both tensors. The numbers count elements from the start of each tensor.
struct ElementRun {
  int64_t from = 0;
  int64_t to = 0;
  int64_t count = 0;
};
/// Visits the elements that two parts of one tensor have in common. `from` and `to` are the regions of two tensors that hold just
/// these elements, row by row. Consecutive elements form one run, as long as possible. Runs come in the order of `from`, and stop
/// at the first failure.
base::Result<void> for_each_common_run(const Region& from, const Region& to,
                                       const std::function<base::Result<void>(const ElementRun&)>& visit);

/// Splits a region into slices of at most `max_elements`, in its row-by-row order: reading the slices one after the other reads
/// the same as reading the region. Stops at the first failure.
base::Result<void> for_each_slice(const Region& region, int64_t max_elements,
                                  const std::function<base::Result<void>(const Region&)>& visit);

/// Returns the reason why shards do not form a tensor of `shape` with each element once; nothing if they do.
std::optional<std::string> partition_problem(const std::vector<int64_t>& shape, const std::vector<Region>& parts);

}  // namespace cohort::files
