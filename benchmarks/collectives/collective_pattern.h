/// Test values: every rank's input is known everywhere, so each rank can check its own result. Small whole numbers, whose
/// sums are exact in every dtype, whatever the order. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "benchmarks/collectives/collective_case.h"

namespace cohort::bench {

/// Writes rank `rank`'s input of a case.
void fill_input(const CollectiveCase& what, int rank, std::byte* input);

/// Why `result` (the output, or the input of operations in place) is not what rank `rank` must have after the call; empty if
/// it is.
std::string find_difference(const CollectiveCase& what, int rank, const std::byte* result);

}  // namespace cohort::bench
