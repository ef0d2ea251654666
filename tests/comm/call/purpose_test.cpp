#include "cohort/comm/call/purpose.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

namespace cohort::comm {
namespace {

// Ranks tell each other the numbers: one that is taken stays as it is.
const std::map<uint8_t, const char*> kWordsOf{
    {1, "DistributedDataParallel's exchange of buffers before a forward pass"},
    {2, "DistributedDataParallel's agreement on buckets before a forward pass"},
    {3, "DistributedDataParallel's exchange of gradients in a backward pass"},
    {4, "ddp::Reducer's agreement on buckets before a step"},
    {5, "ddp::Reducer's exchange of gradients in a backward pass"},
    {6, "ZeroRedundancyOptimizer's exchange of parameters in a step"},
    {7, "FullySharded's meeting before a forward pass or at the end of a backward pass"},
    {8, "SyncBatchNorm's exchange of sums in a forward or backward pass"},
    {9, "an exchange of tensor-parallel layers in a forward or backward pass"},
    {10, "ring attention's exchange of keys and values in a forward or backward pass"},
    {11, "the norm of all ranks' gradients in clip_grad_norm_"},
    {12, "GradScaler's search for gradients that are not finite"},
    {13, "communication of an operation on a DTensor, such as item(), full_tensor() or a matrix product"},
    {14, "an average of the ranks' parameters"},
    {15, "an exchange of get_state_dict, set_state_dict or a checkpoint"},
    {16, "a metric's sum over the ranks"},
    {17, "FullySharded's exchange of parameters or gradients in a forward or backward pass"},
    {18, "the agreement of a pipeline's ranks in a step"},
};

TEST(Purpose, IsNamedAfterTheCallMessage) {
  for (int number = 0; number <= 255; ++number) {
    const auto* purpose = purpose_of(static_cast<uint8_t>(number));
    const auto found = kWordsOf.find(static_cast<uint8_t>(number));
    ASSERT_EQ(purpose != nullptr, found != kWordsOf.end()) << number;
    if (!purpose) continue;
    EXPECT_EQ(purpose->number, number);
    EXPECT_EQ(with_purpose("all_reduce", purpose), "all_reduce, which is " + std::string(found->second));
    EXPECT_EQ(purpose_in(with_purpose("all_reduce", purpose)), purpose) << number;
    EXPECT_EQ(purpose_of(found->second), purpose) << number;
  }
  EXPECT_EQ(with_purpose("all_reduce", nullptr), "all_reduce");
  EXPECT_EQ(purpose_in("all_reduce"), nullptr);
  EXPECT_EQ(purpose_in("all_reduce, which is what a later release does"), nullptr);
  EXPECT_EQ(purpose_of(""), nullptr);
}

TEST(Purpose, HasANumberOfItsOwnMessage) {
  const auto error_of = [](int number, const char* words) -> std::string {
    try {
      const Purpose purpose(static_cast<uint8_t>(number), words);
      return {};
    } catch (const std::logic_error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(error_of(1, "another exchange"),
            "[cohort] a purpose of collectives, \"another exchange\", has the number 1, which is out of range or "
            "another one's");
  EXPECT_NE(error_of(0, "an exchange"), "");
  EXPECT_NE(error_of(Purpose::kMaxNumber + 1, "an exchange"), "");
  // A second copy of a header's variable, as in a program beside the library.
  EXPECT_EQ(error_of(1, std::string(kWordsOf.at(1)).c_str()), "");
  EXPECT_EQ(purpose_of(1)->words, kWordsOf.at(1));
}

TEST(Purpose, HintsDependOnItMessage) {
  const std::string missing =
      "all ranks must make the calls that communicate, in the same order: look for one under a condition that not all "
      "ranks meet, such as rank == 0; or some ranks take more steps than others";
  const std::string uneven =
      "the ranks do not take the same steps; most often some have more batches than others. Use "
      "data::DistributedSampler, which gives all ranks the same number; without it, stop every epoch at the smallest "
      "number of batches of any rank, which all_reduce with ReduceOp::MIN computes";
  const auto* gradients = purpose_of(3);
  for (int number = 0; number <= 18; ++number) {
    const auto* purpose = purpose_of(static_cast<uint8_t>(number));
    const bool is_by_name = 11 <= number && number <= 16;
    EXPECT_EQ(hint_for(purpose, gradients), is_by_name ? missing : uneven) << number;
    EXPECT_EQ(hint_for(gradients, purpose), is_by_name ? missing : uneven) << number;
    EXPECT_EQ(lost_rank_hint("look", purpose),
              number == 0 ? "look" : "look; if it ended well, " + (is_by_name ? missing : uneven))
        << number;
  }
}

TEST(Purpose, OfAThreadIsThatOfTheInnermostCall) {
  const auto& state = *purpose_of(15);
  const auto& metrics = *purpose_of(16);
  const auto& moves = *purpose_of(13);
  EXPECT_EQ(CalledFor::current(), nullptr);
  {
    const CalledFor outer(state);
    EXPECT_EQ(&CalledFor::current_or(moves), &state);
    {
      const CalledFor inner(metrics);
      EXPECT_EQ(CalledFor::current(), &metrics);
    }
    EXPECT_EQ(CalledFor::current(), &state);
  }
  EXPECT_EQ(&CalledFor::current_or(moves), &moves);
}

}  // namespace
}  // namespace cohort::comm
