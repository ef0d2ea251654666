/// The texts of failed operations, as pure functions. Form: what failed, where, why (one line per cause), what to do next.
#pragma once

#include <string>
#include <vector>

#include "cohort/job/operation.h"

namespace cohort::job {

struct Failure {
  Operation operation;
  std::vector<std::string> causes;
  std::string hint;
};

std::string failure_message(const Failure& failure);

/// "rank 3", "ranks 1, 2 and 5".
std::string ranks_in_words(const std::vector<int>& ranks);

}  // namespace cohort::job
