/// The purposes for which this folder calls collectives; see comm/call/purpose.h.
#pragma once

#include "cohort/comm/call/purpose.h"

namespace cohort::optim {

inline const comm::Purpose kClipGradNorm(11, "the norm of all ranks' gradients in clip_grad_norm_",
                                         comm::Purpose::kByName);

}  // namespace cohort::optim
