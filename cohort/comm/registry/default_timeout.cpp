#include "cohort/comm/registry/default_timeout.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace cohort::comm {

std::chrono::milliseconds checked_timeout(std::optional<std::chrono::milliseconds> timeout,
                                          const std::vector<DeviceBackend>& config) {
  if (!timeout) {
    const bool nccl_only = std::all_of(config.begin(), config.end(), [](const auto& e) { return e.backend == "nccl"; });
    return nccl_only ? std::chrono::minutes(10) : std::chrono::minutes(30);
  }
  TORCH_CHECK_VALUE(timeout->count() > 0, "timeout must be positive, got ", timeout->count(), " ms");
  return *timeout;
}

}  // namespace cohort::comm
