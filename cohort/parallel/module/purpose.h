/// The purposes for which this folder calls collectives; see comm/call/purpose.h.
#pragma once

#include "cohort/comm/call/purpose.h"

namespace cohort::parallel {

inline const comm::Purpose kStateExchange(15, "an exchange of get_state_dict, set_state_dict or a checkpoint",
                                          comm::Purpose::kByName);

}  // namespace cohort::parallel
