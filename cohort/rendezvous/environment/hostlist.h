/// Expands SLURM's short forms of lists of host names and of numbers. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::rendezvous {

/// Expands "node[01-03,7],gpu5" to node01, node02, node03, node7 and gpu5, and "r[1-2]n[1-2]-ib" to four names. An error quotes
/// the text and says what is wrong in it. More than 65,536 names are also an error.
base::Result<std::vector<std::string>> expand_hostlist(std::string_view text);

/// Expands "2(x3),1" to 2, 2, 2, 1.
base::Result<std::vector<int>> expand_counts(std::string_view text);

}  // namespace cohort::rendezvous
