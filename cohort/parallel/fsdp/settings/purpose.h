/// The purposes for which fully_shard calls collectives; see comm/call/purpose.h.
#pragma once

#include "cohort/comm/call/purpose.h"

namespace cohort::fsdp {

inline const comm::Purpose kMeeting(7, "FullySharded's meeting before a forward pass or at the end of a backward pass");
inline const comm::Purpose kExchange(
    17, "FullySharded's exchange of parameters or gradients in a forward or backward pass");

}  // namespace cohort::fsdp
