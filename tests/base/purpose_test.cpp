#include "cohort/base/purpose.h"

#include <gtest/gtest.h>

#include <map>

namespace cohort::base {
namespace {

TEST(Purpose, IsNamedAfterTheCallMessage) {
  const std::map<Purpose, std::string> words{
      {Purpose::kDdpBuffers, "DistributedDataParallel's exchange of buffers before a forward pass"},
      {Purpose::kDdpBuckets, "DistributedDataParallel's agreement on buckets before a forward pass"},
      {Purpose::kDdpGradients, "DistributedDataParallel's exchange of gradients in a backward pass"},
      {Purpose::kReducerBuckets, "ddp::Reducer's agreement on buckets before a step"},
      {Purpose::kReducerGradients, "ddp::Reducer's exchange of gradients in a backward pass"},
      {Purpose::kZeroParameters, "ZeroRedundancyOptimizer's exchange of parameters in a step"},
      {Purpose::kFsdpMeeting, "FullySharded's meeting before a forward pass or at the end of a backward pass"},
      {Purpose::kSyncBatchNorm, "SyncBatchNorm's exchange of sums in a forward or backward pass"},
      {Purpose::kTensorParallel, "an exchange of tensor-parallel layers in a forward or backward pass"},
      {Purpose::kContextParallel, "ring attention's exchange of keys and values in a forward or backward pass"},
      {Purpose::kClipGradNorm, "the norm of all ranks' gradients in clip_grad_norm_"},
      {Purpose::kGradScaler, "GradScaler's search for gradients that are not finite"},
      {Purpose::kDTensor,
       "communication of an operation on a DTensor, such as item(), full_tensor() or a matrix product"},
      {Purpose::kModelAverage, "an average of the ranks' parameters"},
      {Purpose::kState, "an exchange of get_state_dict, set_state_dict or a checkpoint"},
      {Purpose::kMetrics, "a metric's sum over the ranks"},
      {Purpose::kFsdpExchange, "FullySharded's exchange of parameters or gradients in a forward or backward pass"},
      {Purpose::kPipeline, "the agreement of a pipeline's ranks in a step"},
  };
  EXPECT_EQ(words.size() + 1, kNumPurposes);
  for (const auto& [purpose, text] : words) {
    EXPECT_EQ(with_purpose("all_reduce", purpose), "all_reduce, which is " + text);
    EXPECT_EQ(purpose_in(with_purpose("all_reduce", purpose)), purpose) << text;
  }
  EXPECT_EQ(with_purpose("all_reduce", Purpose::kOwn), "all_reduce");
  EXPECT_EQ(purpose_in("all_reduce"), Purpose::kOwn);
}

TEST(Purpose, HintsDependOnItMessage) {
  const std::string missing =
      "all ranks must make the calls that communicate, in the same order: look for one under a condition that not all "
      "ranks meet, such as rank == 0; or some ranks take more steps than others";
  const std::string uneven =
      "the ranks do not take the same steps; most often some have more batches than others. data::DistributedSampler "
      "gives all ranks as many; without it, stop every epoch at the smallest number of batches, which all_reduce with "
      "ReduceOp::MIN tells";
  for (int number = 0; number < kNumPurposes; ++number) {
    const auto purpose = static_cast<Purpose>(number);
    const bool is_call = purpose == Purpose::kClipGradNorm || purpose == Purpose::kGradScaler ||
                         purpose == Purpose::kDTensor || purpose == Purpose::kModelAverage ||
                         purpose == Purpose::kState || purpose == Purpose::kMetrics;
    EXPECT_EQ(hint_for(purpose, Purpose::kDdpGradients), is_call ? missing : uneven) << number;
    EXPECT_EQ(hint_for(Purpose::kDdpGradients, purpose), is_call ? missing : uneven) << number;
    EXPECT_EQ(lost_rank_hint("look", purpose),
              number == 0 ? "look" : "look; if it ended well, " + (is_call ? missing : uneven))
        << number;
  }
}

TEST(Purpose, OfAThreadIsThatOfTheInnermostCall) {
  EXPECT_EQ(CalledFor::current(), Purpose::kOwn);
  {
    const CalledFor outer(Purpose::kState);
    EXPECT_EQ(CalledFor::current_or(Purpose::kDTensor), Purpose::kState);
    {
      const CalledFor inner(Purpose::kMetrics);
      EXPECT_EQ(CalledFor::current(), Purpose::kMetrics);
    }
    EXPECT_EQ(CalledFor::current(), Purpose::kState);
  }
  EXPECT_EQ(CalledFor::current_or(Purpose::kDTensor), Purpose::kDTensor);
}

}  // namespace
}  // namespace cohort::base
