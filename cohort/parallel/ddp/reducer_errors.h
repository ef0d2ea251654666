/// Texts of the errors of a reducer. Pure. The wording that PyTorch's tests pin (distributed_test.py) is kept.
#pragma once

#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::ddp {

struct UnfinishedReduction {
  int rank = 0;
  bool find_unused_parameters = false;
  bool static_graph = false;
  /// Parameters without a gradient, and all parameters' names (may be empty).
  std::vector<size_t> indices;
  std::vector<std::string> names;
};

COHORT_TEST_API std::string unfinished_reduction_message(const UnfinishedReduction& state);
/// `names` may be empty. `searched`: unused parameters had been looked for.
COHORT_TEST_API std::string ready_twice_message(size_t index, const std::vector<std::string>& names, bool searched);
COHORT_TEST_API std::string graph_changed_message();

}  // namespace cohort::ddp
