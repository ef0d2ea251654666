/// The purposes for which DDP calls collectives; see comm/call/purpose.h.
#pragma once

#include "cohort/comm/call/purpose.h"

namespace cohort::ddp {

inline const comm::Purpose kBufferExchange(1, "DistributedDataParallel's exchange of buffers before a forward pass");
inline const comm::Purpose kBucketAgreement(2, "DistributedDataParallel's agreement on buckets before a forward pass");
inline const comm::Purpose kGradientExchange(3, "DistributedDataParallel's exchange of gradients in a backward pass");
inline const comm::Purpose kReducerBuckets(4, "ddp::Reducer's agreement on buckets before a step");
inline const comm::Purpose kReducerGradients(5, "ddp::Reducer's exchange of gradients in a backward pass");

}  // namespace cohort::ddp
