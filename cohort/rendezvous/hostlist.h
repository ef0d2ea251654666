/// SLURM's lists of host names and of numbers, in their short forms. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::rendezvous {

/// "node[01-03,7],gpu5" names node01, node02, node03, node7 and gpu5; "r[1-2]n[1-2]-ib" names four. An error quotes the text
/// and says what is wrong in it. More than 65,536 names are also an error.
base::Result<std::vector<std::string>> expand_hostlist(std::string_view text);

/// "2(x3),1" is 2, 2, 2, 1.
base::Result<std::vector<int>> expand_counts(std::string_view text);

}  // namespace cohort::rendezvous
