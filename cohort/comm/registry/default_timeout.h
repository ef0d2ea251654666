/// The time that operations of a group may wait if the user gives no timeout.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "cohort/comm/registry/backend_config.h"
#include "cohort/export.h"

namespace cohort::comm {

/// Returns `timeout`, or, if absent, PyTorch's default: 30 minutes, 10 for groups of NCCL alone. Throws c10::ValueError unless
/// positive.
COHORT_TEST_API std::chrono::milliseconds checked_timeout(std::optional<std::chrono::milliseconds> timeout,
                                                          const std::vector<DeviceBackend>& config);

}  // namespace cohort::comm
