/// The purposes for which this folder calls collectives; see comm/call/purpose.h.
#pragma once

#include "cohort/comm/call/purpose.h"

namespace cohort::parallel {

inline const comm::Purpose kTensorParallel(9, "an exchange of tensor-parallel layers in a forward or backward pass");

}  // namespace cohort::parallel
