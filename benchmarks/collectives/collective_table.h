/// The screen table of `cohort-bench collectives`. Pure.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/support/report.h"

namespace cohort::bench {

/// Returns a block per operation, dtype, number of ranks and memory, with a line per size and all rivals side by side. Requires
/// names of case_name().
std::string collectives_table(const std::vector<Row>& rows);

}  // namespace cohort::bench
