/// The error of a step that ends, or is followed by another one, before every parameter has its gradient.
#pragma once

#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/options.h"
#include "cohort/parallel/ddp/settings/reducer_errors.h"

namespace cohort::ddp {

/// `what`: the action that is impossible now; see UnfinishedReduction. `is_ready`: a flag per parameter.
[[noreturn]] COHORT_TEST_API void throw_unfinished(const ReducerOptions& options, Audience audience, const char* what,
                                                   const std::vector<char>& is_ready);

}  // namespace cohort::ddp
