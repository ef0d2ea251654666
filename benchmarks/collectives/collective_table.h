/// The screen table of `cohort-bench collectives`. Pure.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/support/report.h"

namespace cohort::bench {

/// A block per operation, dtype, number of ranks and memory, a line per size, rivals side by side. Requires names made by
/// case_name().
std::string collectives_table(const std::vector<Row>& rows);

}  // namespace cohort::bench
