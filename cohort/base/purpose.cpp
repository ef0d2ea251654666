#include "cohort/base/purpose.h"

namespace cohort::base {

const char* const kUnevenStepsHint =
    "the ranks do not take the same steps; most often some have more batches than others. data::DistributedSampler "
    "gives "
    "all ranks as many; without it, stop every epoch at the smallest number of batches, which all_reduce with "
    "ReduceOp::MIN tells";

const char* in_words(Purpose purpose) {
  switch (purpose) {
    case Purpose::kOwn:
      return "";
    case Purpose::kDdpBuffers:
      return "DistributedDataParallel's exchange of buffers before a forward pass";
    case Purpose::kDdpBuckets:
      return "DistributedDataParallel's agreement on buckets before a forward pass";
    case Purpose::kDdpGradients:
      return "DistributedDataParallel's exchange of gradients in a backward pass";
    case Purpose::kReducerBuckets:
      return "ddp::Reducer's agreement on buckets before a step";
    case Purpose::kReducerGradients:
      return "ddp::Reducer's exchange of gradients in a backward pass";
  }
  return "";
}

}  // namespace cohort::base
