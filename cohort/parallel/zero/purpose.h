/// The purposes for which this folder calls collectives; see comm/call/purpose.h.
#pragma once

#include "cohort/comm/call/purpose.h"

namespace cohort::zero {

inline const comm::Purpose kParameterExchange(6, "ZeroRedundancyOptimizer's exchange of parameters in a step");

}  // namespace cohort::zero
