#include "cohort/pipeline/validation.h"

#include <gtest/gtest.h>

#include <string>

#include "cohort/pipeline/action_text.h"
#include "cohort/pipeline/csv.h"

namespace cohort::pipeline {
namespace {

std::string computed(const std::string& csv, const PipelineShape& shape,
                     OrderFormat format = OrderFormat::kComputeOnly) {
  const auto ranks = validate_compute(*parse_csv("plan.csv", csv), shape, format);
  return ranks ? "fine" : ranks.error().describe();
}

// Of two stages on two ranks and one microbatch.
std::string communicated(const std::string& csv, const StageRanks& stage_ranks = {0, 1}) {
  const auto fine = validate_communication(*parse_csv("plan.csv", csv), stage_ranks);
  return fine ? "fine" : fine.error().describe();
}

TEST(Validation, FindsRanksOfStages) {
  const auto order = parse_csv("plan.csv", "0F0,2F0,2B0,0B0\n1F0,,1I0,1W0\n");
  EXPECT_EQ(*validate_compute(*order, {2, 3, 1}, OrderFormat::kComputeOnly), (StageRanks{0, 1, 0}));
}

TEST(Validation, RefusesIncompleteListsInPythonsWords) {
  EXPECT_EQ(computed("0F0,0B0\n", {2, 1, 1}), "Schedule has incorrect number of ranks - expected 2, actual 1");
  EXPECT_EQ(computed("0B0,0F0\n", {1, 1, 1}),
            "Rank 0, step 0: Running Full Backward for stage 0, microbatch 0 without first running Forward");
  EXPECT_EQ(computed("0F0,0I1\n", {1, 1, 2}),
            "Rank 0, step 1: Running Backward Input for stage 0, microbatch 1 without first running Forward");
  EXPECT_EQ(computed("0F0,0W0\n", {1, 1, 1}),
            "Rank 0, step 1: Running Backward Weight for stage 0, microbatch 0 without first running Backward Input");
  EXPECT_EQ(computed("0F0,0B0\n0F1,0B1\n", {2, 1, 2}), "Rank 1, step 0: Stage 0 is assigned to both rank 1 and rank 0");
  EXPECT_EQ(computed("0F0,0B0\n", {1, 1, 2}), "Got 1 F microbatches for stage 0, expected 2");
  EXPECT_EQ(computed("0F0,0I0\n", {1, 1, 1}),
            "Invalid backward microbatches for stage 0: I and W must have equal counts, but got I=1, W=0");
  EXPECT_EQ(computed("0F0,0F1,0B0\n", {1, 1, 2}),
            "Invalid backward microbatches for stage 0: expected 2 total backwards, but got B=1, I=0, W=0");
}

TEST(Validation, RefusesWhatPythonOverlooks) {
  EXPECT_EQ(computed("0F0,0F0,0B0\n", {1, 1, 1}), "Rank 0, step 1: 0F0 runs a second time");
  EXPECT_EQ(computed("0F0,1B0\n", {1, 1, 1}), "Rank 0, step 1: 1B0 is of stage 1, but the pipeline has 1");
  EXPECT_EQ(computed("0F0,(0F1;0B0)OVERLAP_F_B\n", {1, 1, 1}),
            "Rank 0, step 1: 0F1 is of microbatch 1, but the batch has 1");
  EXPECT_EQ(computed("0F0,,0B0\n", {1, 1, 1}, OrderFormat::kComputeComms),
            "Rank 0, step 1: Expected action to be not None: a list with communication has no idle steps");
}

// Programs can make what no file can say.
TEST(Validation, RefusesStagesAndMicrobatchesThatAreNone) {
  const auto refusal = [](const ActionList& list, OrderFormat format = OrderFormat::kComputeOnly) {
    const auto ranks = validate_compute({list}, {1, 1, 1}, format);
    return ranks ? "fine" : ranks.error().describe();
  };
  const Action forward{ActionKind::kForward, 0, 0}, backward{ActionKind::kFullBackward, 0, 0};
  EXPECT_EQ(refusal({forward, backward}), "fine");
  EXPECT_EQ(refusal({{ActionKind::kForward}, backward}), "Rank 0, step 0: -1F is of stage -1, but the pipeline has 1");
  EXPECT_EQ(refusal({{ActionKind::kForward, 0, -1}, {ActionKind::kFullBackward, 0, -1}}),
            "Rank 0, step 0: 0F is of microbatch -1, but the batch has 1");
  EXPECT_EQ(refusal({forward, backward, {ActionKind::kSendForward, 0, -1}}, OrderFormat::kComputeComms),
            "Rank 0, step 2: 0SEND_F is of microbatch -1, but the batch has 1");
  EXPECT_EQ(refusal({{ActionKind::kUnshard, 0}, forward, backward}, OrderFormat::kComputeComms), "fine");
  for (const ActionKind kind : {ActionKind::kIdle, ActionKind::kOverlap, ActionKind::kReshard}) {
    const Action overlap{ActionKind::kOverlap, -1, -1, {forward, {kind, 0, 0}}};
    EXPECT_EQ(refusal({overlap, backward}), "Rank 0, step 0: " + text_of(overlap) + " has parts that compute nothing");
  }
}

TEST(Validation, ComparesWhatIsSentWithWhatIsReceived) {
  const std::string rank_0 = "0F0,0SEND_F0,0RECV_B0,0B0\n";
  EXPECT_EQ(communicated(rank_0 + "1RECV_F0,1F0,1B0,1SEND_B0\n"), "fine");
  EXPECT_EQ(communicated(rank_0 + "1F0,1B0,1SEND_B0\n"),
            "rank 0 sends 0SEND_F0 at step 1, but rank 1 has no 1RECV_F0 left for it");
  EXPECT_EQ(communicated(rank_0 + "1RECV_F0,1F0,1B0\n"),
            "rank 0 waits at step 2 for 0RECV_B0, but rank 1 never sends it");
  EXPECT_EQ(communicated("0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F1,1RECV_F0,1F0,1F1\n"),
            "message 0 from rank 0 to rank 1 is 0SEND_F0 for its sender (step 1), but 1RECV_F1 for its receiver (step "
            "0): both "
            "must have the same order");
  EXPECT_EQ(communicated("0F0,0SEND_F0,1F0\n\n", {0, 0}),
            "Rank 0, step 1: 0SEND_F0 has stage 1 at its other end, which is on the same rank");
  EXPECT_EQ(communicated("0F0,0SEND_B0\n\n"), "Rank 0, step 1: 0SEND_B0 has no stage at its other end");
}

TEST(Validation, StagesComputeWhileTheirParametersAreThere) {
  EXPECT_EQ(communicated("0UNSHARD,0F0,0B0,0RESHARD\n\n"), "fine");
  EXPECT_EQ(communicated("0F0,0UNSHARD,0B0,0RESHARD\n\n"),
            "Rank 0, step 0: 0F0, but the stage's parameters are not gathered there");
  EXPECT_EQ(communicated("0UNSHARD,0UNSHARD,0F0\n\n"),
            "Rank 0, step 1: 0UNSHARD, but the stage's parameters are already gathered there");
  EXPECT_EQ(communicated("0RESHARD\n\n"),
            "Rank 0, step 0: 0RESHARD, but the stage's parameters are not gathered there");
}

}  // namespace
}  // namespace cohort::pipeline
