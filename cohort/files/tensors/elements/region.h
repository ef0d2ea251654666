/// Region: which elements of a tensor somebody has, and how two such parts lie to each other. Pure.
///
/// A region is a list of index ranges per dimension; its elements are all combinations of those indices, in the order in which
/// its owner's own tensor has them, row by row. A plain box has one range per dimension; a part with gaps (StridedShard) more.
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

/// One list per dimension. A scalar has none, and one element.
using Region = std::vector<IndexRanges>;

Region whole_region(const std::vector<int64_t>& shape);
/// Requires: as many lengths as offsets.
Region box_region(const std::vector<int64_t>& offsets, const std::vector<int64_t>& lengths);
/// Lengths of the dimensions of a tensor that holds the region.
std::vector<int64_t> shape_of(const Region& region);
int64_t num_elements(const Region& region);
int64_t num_elements(const std::vector<int64_t>& shape);
bool overlaps(const Region& a, const Region& b);
/// True if each element of `inner` is one of `outer`. Both have ranges in ascending order.
bool contains(const Region& outer, const Region& inner);
/// Its boxes, one for each combination of ranges, in order; none for an empty region.
std::vector<Region> boxes_of(const Region& region);
/// "[0:4, 2:3+6:8]"
std::string region_text(const Region& region);
/// Why `region` is none of a tensor of `shape`: number of dimensions, bounds, ranges that are empty or not in ascending order.
base::Result<void> check_region(const Region& region, const std::vector<int64_t>& shape);

/// Elements that lie one after the other in both tensors. In elements, from the start of each.
struct ElementRun {
  int64_t from = 0;
  int64_t to = 0;
  int64_t count = 0;
};
/// What two parts of one tensor have in common: `from` and `to` are tensors that hold just their regions, row by row.
/// Neighbouring elements are one run, as long as can be; runs come in the order of `from`, and stop at the first failure.
base::Result<void> for_each_common_run(const Region& from, const Region& to,
                                       const std::function<base::Result<void>(const ElementRun&)>& visit);

/// Cuts a region into slices of at most `max_elements`, in its row-by-row order: what is read of each slice in turn is what would
/// be read of the whole. Stops at the first failure.
base::Result<void> for_each_slice(const Region& region, int64_t max_elements,
                                  const std::function<base::Result<void>(const Region&)>& visit);

/// Why parts of several owners are not the whole of a tensor of `shape`, each element once; nothing if they are.
std::optional<std::string> partition_problem(const std::vector<int64_t>& shape, const std::vector<Region>& parts);

}  // namespace cohort::files
