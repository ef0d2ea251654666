/// Test values: every rank knows all inputs, so each can check its own result. Small integers, whose sums are exact in every
/// dtype and order. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "benchmarks/collectives/collective_case.h"

namespace cohort::bench {

/// Writes rank `rank`'s input of a case.
void fill_input(const CollectiveCase& what, int rank, std::byte* input);

/// Returns why `result` (the output, or the input of in-place operations) is wrong for rank `rank` after the call; empty if it is
/// correct.
std::string find_difference(const CollectiveCase& what, int rank, const std::byte* result);

}  // namespace cohort::bench
