/// What to do about a disk that is full.
#pragma once

#include <string>

#include "cohort/base/result.h"

namespace cohort::base {

/// Where `reason` is ENOSPC: `error` with a hint that says how much room there still is in `folder`. Else `error`.
Error with_room_hint(Error error, int reason, const std::string& folder);

}  // namespace cohort::base
