/// Where ranks exchange numbers that their hosts have.
#pragma once

#include <c10/core/Device.h>

#include "cohort/comm/group/process_group.h"

namespace cohort::train {

/// The CPU, where nobody waits for kernels, if the group serves it; else `device`. Null: the default group.
c10::Device device_for_numbers(const Group& group, c10::Device device);

}  // namespace cohort::train
