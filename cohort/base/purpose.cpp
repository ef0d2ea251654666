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
    case Purpose::kClipGradNorm:
      return "the norm of all ranks' gradients in clip_grad_norm_";
    case Purpose::kGradScaler:
      return "GradScaler's search for gradients that are not finite";
    case Purpose::kDTensor:
      return "communication of an operation on a DTensor, such as item(), full_tensor() or a matrix product";
    case Purpose::kModelAverage:
      return "an average of the ranks' parameters";
    case Purpose::kState:
      return "an exchange of get_state_dict, set_state_dict or a checkpoint";
    case Purpose::kMetrics:
      return "a metric's sum over the ranks";
    case Purpose::kFsdpExchange:
      return "FullySharded's exchange of parameters or gradients in a forward or backward pass";
    case Purpose::kPipeline:
      return "the agreement of a pipeline's ranks in a step";
  }
  return "";
}

// The program calls it by its name, once or where it likes, so a condition may keep ranks from it.
bool is_call_of_program(Purpose purpose) { return Purpose::kClipGradNorm <= purpose && purpose <= Purpose::kMetrics; }

}  // namespace

const char* const kUnevenStepsHint =
    "the ranks do not take the same steps; most often some have more batches than others. "
    "data::DistributedSampler gives all ranks as many; without it, stop every epoch at the smallest number of batches, "
    "which all_reduce with ReduceOp::MIN tells";

const char* const kMissingCallHint =
    "all ranks must make the calls that communicate, in the same order: look for one under a condition that not all "
    "ranks "
    "meet, such as rank == 0; or some ranks take more steps than others";

const char* hint_for(Purpose one, Purpose other) {
  return is_call_of_program(one) || is_call_of_program(other) ? kMissingCallHint : kUnevenStepsHint;
}

Purpose purpose_in(std::string_view text) {
  const auto begin = text.find(kWhichIs);
  if (begin == std::string_view::npos) return Purpose::kOwn;
  const auto words = text.substr(begin + std::string_view(kWhichIs).size());
  for (int number = 0; number < kNumPurposes; ++number) {
    if (words == in_words(static_cast<Purpose>(number))) return static_cast<Purpose>(number);
  }
  return Purpose::kOwn;
}

std::string with_purpose(std::string call, Purpose purpose) {
  return purpose == Purpose::kOwn ? call : std::move(call) + kWhichIs + in_words(purpose);
}

std::string lost_rank_hint(std::string hint, Purpose purpose) {
  return purpose == Purpose::kOwn ? hint : std::move(hint) + "; if it ended well, " + hint_for(purpose, purpose);
}

}  // namespace cohort::base
