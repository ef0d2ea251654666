#include "cohort/data/datasets/stack_dataset.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace cohort::data::detail {

int64_t equal_size_of(const std::vector<int64_t>& sizes) {
  TORCH_CHECK_VALUE(!sizes.empty(), "At least one dataset should be passed");
  const bool are_equal = std::count(sizes.begin(), sizes.end(), sizes.front()) == static_cast<int64_t>(sizes.size());
  TORCH_CHECK_VALUE(are_equal, "Size mismatch between datasets");
  return sizes.front();
}

}  // namespace cohort::data::detail
