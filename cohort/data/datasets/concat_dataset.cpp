#include "cohort/data/datasets/concat_dataset.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>

#include "cohort/base/numbers/count.h"

namespace cohort::data::detail {

std::vector<int64_t> cumulative_sizes_of(const std::vector<int64_t>& sizes) {
  TORCH_CHECK_VALUE(!sizes.empty(), "datasets should not be an empty iterable");
  std::vector<int64_t> sums(sizes.size());
  std::partial_sum(sizes.begin(), sizes.end(), sums.begin(), base::add_capped<int64_t>);
  return sums;
}

PlaceInDatasets place_in(const std::vector<int64_t>& cumulative_sizes, int64_t index) {
  const int64_t size = cumulative_sizes.back();
  TORCH_CHECK_VALUE(index >= -size, "absolute value of index should not exceed dataset length");
  TORCH_CHECK_INDEX(index < size, "list index out of range");
  if (index < 0) index += size;
  const auto found = std::upper_bound(cumulative_sizes.begin(), cumulative_sizes.end(), index);
  const int64_t num_before = found == cumulative_sizes.begin() ? 0 : *(found - 1);
  return {static_cast<size_t>(found - cumulative_sizes.begin()), index - num_before};
}

}  // namespace cohort::data::detail
