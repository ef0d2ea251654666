/// The mesh layer's purposes of collectives; see comm/call/purpose.h.
#pragma once

#include "cohort/comm/call/purpose.h"

namespace cohort::mesh {

inline const comm::Purpose kRedistribution(
    13, "communication of an operation on a DTensor, such as item(), full_tensor() or a matrix product",
    comm::Purpose::kByName);

}  // namespace cohort::mesh
