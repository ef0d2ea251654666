// That lists equal Python's: tests/e2e/pipeline/schedules_test.py.
#include "cohort/pipeline/schedules.h"

#include <gtest/gtest.h>

#include <string>

#include "cohort/pipeline/csv.h"
#include "cohort/pipeline/lowering.h"
#include "cohort/pipeline/stage_ranks.h"

namespace cohort::pipeline {
namespace {

std::string planned(ScheduleKind kind, const PipelineShape& shape) {
  const auto order = plan_schedule(kind, shape);
  return order ? csv_text(*order) : order.error().describe();
}

TEST(Schedules, AreFoundByName) {
  EXPECT_EQ(*schedule_by_name("1f1b"), ScheduleKind::k1F1B);
  EXPECT_EQ(*schedule_by_name("ZBVzerobubble"), ScheduleKind::kZBVZeroBubble);
  for (const std::string& name : schedule_names()) EXPECT_EQ(schedule_name(*schedule_by_name(name)), name);
  EXPECT_EQ(schedule_by_name("GPipes").error().describe(),
            "Unknown schedule name 'GPipes'. The valid options are ['1F1B', 'Interleaved1F1B', 'GPipe', 'LoopedBFS', "
            "'InterleavedZeroBubble', 'ZBVZeroBubble', 'DualPipeV'] (did you mean \"GPipe\"?)");
}

TEST(Schedules, LastStageOf1F1BBeginsWithTheFirstMicrobatch) {
  EXPECT_EQ(planned(ScheduleKind::k1F1B, {2, 2, 2}), "0F0,,,0F1,0B0,,0B1\r\n,1F0,1B0,1F1,1B1\r\n");
}

TEST(Schedules, RefuseShapesInPythonsWords) {
  EXPECT_EQ(planned(ScheduleKind::kGPipe, {4, 2, 4}), "Pipeline group size 4 cannot be larger than number of stages 2");
  EXPECT_EQ(planned(ScheduleKind::k1F1B, {4, 4, 3}),
            "Number of microbatches (3) must be greater than or equal to the number of stages (4).");
  EXPECT_EQ(
      planned(ScheduleKind::kInterleaved1F1B, {2, 4, 5}),
      "Interleaved 1F1B requires the number of microbatches to be a multiple of the number of rounds (2), but got 5.");
  EXPECT_EQ(planned(ScheduleKind::kInterleavedZeroBubble, {2, 4, 5}),
            "Zero bubble requires the number of microbatches to be a multiple of the number of rounds (2), but got 5.");
  EXPECT_EQ(planned(ScheduleKind::kZBVZeroBubble, {2, 2, 5}), "ZBV requires exactly 2 stages per rank, but got 1.");
  EXPECT_EQ(planned(ScheduleKind::kDualPipeV, {2, 4, 3}),
            "DualPipeV requires at least as many microbatches as stages, but got 3 microbatches and 4 stages.");
}

TEST(Schedules, RefuseOtherShapes) {
  EXPECT_EQ(planned(ScheduleKind::kGPipe, {0, 1, 1}), "a pipeline has 1 to 1024 ranks, not 0");
  EXPECT_EQ(planned(ScheduleKind::kGPipe, {1, 1 << 20, 1}), "a pipeline has 1 to 16384 stages, not 1048576");
  EXPECT_EQ(planned(ScheduleKind::kGPipe, {1, 1, 0}), "a batch has 1 to 1048576 microbatches, not 0");
  EXPECT_EQ(planned(ScheduleKind::kLoopedBFS, {2, 2000, 2000}),
            "2000 stages and 2000 microbatches make lists of more than 1048576 actions");
  EXPECT_EQ(planned(ScheduleKind::kLoopedBFS, {2, 3, 4}),
            "LoopedBFS needs as many stages on each rank, but 3 stages are not a multiple of 2 ranks");
  EXPECT_EQ(planned(ScheduleKind::kGPipe, {2, 4, 4}),
            "GPipe has one stage on each rank, but got 4 stages and 2 ranks\n  hint: use Interleaved1F1B or LoopedBFS "
            "for several stages on a rank");
}

TEST(Schedules, StagesLieInLoopsOrInAV) {
  EXPECT_EQ(*stage_ranks_of(ScheduleKind::kLoopedBFS, {2, 4, 2}), (StageRanks{0, 1, 0, 1}));
  EXPECT_EQ(*stage_ranks_of(ScheduleKind::kDualPipeV, {2, 4, 4}), (StageRanks{0, 1, 1, 0}));
  EXPECT_EQ(*v_stage_ranks(3, 9), (StageRanks{0, 1, 2, 2, 1, 0, 0, 1, 2}));
  EXPECT_EQ(stages_of_rank({0, 1, 1, 0}, 0), (std::vector<int>{0, 3}));
}

TEST(Lowering, RefusesListsThatNothingCanBeAddedTo) {
  const auto order = parse_csv("plan.csv", "0B0,0F0\n1F0,1B0\n");
  EXPECT_EQ(
      add_send_receive(*order, {0, 1}).error().describe(),
      "Malformed compute schedule, can't schedule sends/recvs\n  rank 0 cannot go on with 0B0 at step 0: no action "
      "before it computes its input\n  rank 1 cannot go on with 1F0 at step 0: no action before it computes its input");
  const auto left = parse_csv("plan.csv", "0F0,0SEND_F0\n1RECV_F0\n");
  EXPECT_EQ(defer_receives(*left, {0, 1}).error().describe(),
            "Malformed input schedule on rank 1: leftover RECV ops with no consumer found: 1RECV_F0. Every RECV must "
            "be consumed "
            "by a downstream compute op.");
}

TEST(Lowering, NeighborsOnOneRankSendNothing) {
  const auto order = parse_csv("plan.csv", "0F0,1F0,1B0,0B0\n");
  EXPECT_EQ(csv_text(*add_send_receive(*order, {0, 0})), "0F0,1F0,1B0,0B0\r\n");
}

std::string parts_of(const std::string& list) {
  return csv_text({without_overlaps((*parse_csv("plan.csv", list))[0], {0, 1, 1, 0})});
}

TEST(Lowering, PartsOfOverlapsSendAsSoonAsTheyCan) {
  EXPECT_EQ(parts_of("0F0,(0F1;3B0)OVERLAP_F_B,0SEND_F1,3SEND_B0,3W0\n"), "0F0,0F1,0SEND_F1,3B0,3SEND_B0,3W0\r\n");
  EXPECT_EQ(parts_of("(3F1;0B0)OVERLAP_F_B,0B1\n"), "3F1,0B0,0B1\r\n");  // nothing to send
  // Another order of messages, which the other rank relies on.
  EXPECT_EQ(parts_of("(0F1;3B0)OVERLAP_F_B,3SEND_B0,0SEND_F1\n"), "0F1,3B0,3SEND_B0,0SEND_F1\r\n");
}

}  // namespace
}  // namespace cohort::pipeline
