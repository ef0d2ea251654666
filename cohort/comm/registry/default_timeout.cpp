#include "cohort/comm/registry/default_timeout.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "cohort/base/system/deadline.h"
#include "cohort/comm/registry/backends.h"

namespace cohort::comm {

std::chrono::milliseconds checked_timeout(std::optional<std::chrono::milliseconds> timeout,
                                          const std::vector<DeviceBackend>& config) {
  if (!timeout) {
    std::chrono::milliseconds longest{0};
    for (const auto& entry : config) longest = std::max(longest, capability_of(entry.backend).default_timeout);
    return longest;
  }
  TORCH_CHECK_VALUE(timeout->count() > 0, "[cohort] timeout must be positive, got ", timeout->count(), " ms");
  return base::bounded_time(*timeout);
}

}  // namespace cohort::comm
