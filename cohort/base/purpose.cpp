#include "cohort/base/purpose.h"

#include <utility>

namespace cohort::base {
namespace {

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
    case Purpose::kZeroParameters:
      return "ZeroRedundancyOptimizer's exchange of parameters in a step";
    case Purpose::kFsdpMeeting:
      return "FullySharded's meeting before a forward pass or at the end of a backward pass";
    case Purpose::kSyncBatchNorm:
      return "SyncBatchNorm's exchange of sums in a forward or backward pass";
    case Purpose::kTensorParallel:
      return "an exchange of tensor-parallel layers in a forward or backward pass";
    case Purpose::kContextParallel:
      return "ring attention's exchange of keys and values in a forward or backward pass";
  }
  return "";
}

}  // namespace

const char* const kUnevenStepsHint =
    "the ranks do not take the same steps; most often some have more batches than others. "
    "data::DistributedSampler gives all ranks as many; without it, stop every epoch at the smallest number of batches, "
    "which all_reduce with ReduceOp::MIN tells";

std::string with_purpose(std::string call, Purpose purpose) {
  return purpose == Purpose::kOwn ? call : std::move(call) + kWhichIs + in_words(purpose);
}

std::string lost_rank_hint(std::string hint, Purpose purpose) {
  return purpose == Purpose::kOwn ? hint : std::move(hint) + "; if it ended well, " + kUnevenStepsHint;
}

}  // namespace cohort::base
