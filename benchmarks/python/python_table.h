/// Compares the times of backends "cohort", "gloo" and "fake" (the floor): rows, and the screen table of `cohort-bench python`.
/// Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "benchmarks/support/report.h"

namespace cohort::bench {

/// Returns a case's three rows: "NAME/ranks=2" beside fake and beside gloo, "NAME/ranks=2/added" beside gloo. `times`:
/// milliseconds per step, one figure per round. Without "cohort" ours has no figure, and without any times the rivals have none
/// either; `why_absent` then says why.
std::vector<Row> python_rows(const std::string& name, const std::map<std::string, std::vector<double>>& times,
                             const std::string& why_absent);

/// Returns a line per case. Requires rows of python_rows(), in their order.
std::string python_table(const std::vector<Row>& rows);

}  // namespace cohort::bench
