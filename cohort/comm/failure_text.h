/// The texts of failed operations, as pure functions. Form: what failed, where, why (one line per cause), what to do next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::comm {

/// One operation, as it is shown to people.
struct OperationInfo {
  std::string name;       ///< "all_reduce"
  uint64_t sequence = 0;  ///< position among this group's operations on this rank, from 1
  std::string group;      ///< "default_pg"
  int rank = -1;          ///< in the group
  int world_size = 0;
  std::string host;
  std::string backend;  ///< "gloo"
  int64_t num_bytes = 0;
  std::string dtype;  ///< "float32"; empty where there is no tensor
};

struct Failure {
  OperationInfo operation;
  std::vector<std::string> causes;
  std::string hint;
};

COHORT_API std::string failure_message(const Failure& failure);

/// "rank 3", "ranks 1, 2 and 5".
COHORT_API std::string ranks_in_words(const std::vector<int>& ranks);

}  // namespace cohort::comm
