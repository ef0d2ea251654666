#include "cohort/pipeline/simulation.h"

#include <gtest/gtest.h>

#include <string>

#include "cohort/pipeline/csv.h"
#include "cohort/pipeline/lowering.h"
#include "cohort/pipeline/schedules.h"

namespace cohort::pipeline {
namespace {

std::string outcome(const std::string& csv, OrderFormat format = OrderFormat::kComputeComms,
                    const StageRanks& stage_ranks = {0, 1}) {
  const auto timeline = simulate(*parse_csv("plan.csv", csv), stage_ranks, format);
  return timeline ? "ends" : timeline.error().describe();
}

double bubble_of(ScheduleKind kind, const PipelineShape& shape, const Costs& costs = {}) {
  const auto order = plan_schedule(kind, shape);
  const auto ranks = stage_ranks_of(kind, shape);
  const auto computed = simulate(*order, *ranks, OrderFormat::kComputeOnly, costs);
  const auto full = add_communication(*order, *ranks, shape.num_microbatches);
  const auto communicated = simulate(*full, *ranks, OrderFormat::kComputeComms, costs);
  // What overlaps is sent when both of its parts have run.
  if (kind != ScheduleKind::kDualPipeV) {
    EXPECT_DOUBLE_EQ(computed->bubble(), communicated->bubble()) << schedule_name(kind);
  }
  return communicated->bubble();
}

TEST(Simulation, NamesWhatEachRankWaitsFor) {
  EXPECT_EQ(outcome("0F0,0RECV_B1,0B1,0SEND_F0\n1F1,1RECV_F0,1B1,1SEND_B1\n"),
            "the schedule never ends: 2 of 8 actions can run\n"
            "  rank 0 waits at step 2 (0B1) for 0F1, which no rank has\n"
            "  rank 1 waits at step 0 (1F1) for 1RECV_F1, which no rank has");
  EXPECT_EQ(outcome("0F0,0RECV_B0,0B0,0SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "the schedule never ends: 3 of 8 actions can run\n"
            "  rank 0 waits at step 2 (0B0) for 1SEND_B0, which rank 1 has at step 3\n"
            "  rank 1 waits at step 1 (1F0) for 0SEND_F0, which rank 0 has at step 3");
  EXPECT_EQ(outcome("0SEND_F0,0F0\n1RECV_F0\n"),
            "the schedule never ends: 1 of 3 actions can run\n"
            "  rank 0 waits at step 0 (0SEND_F0) for 0F0, which comes later, at step 1");
  EXPECT_EQ(outcome("0F0,0B0\n1F0\n", OrderFormat::kComputeOnly),
            "the schedule never ends: 2 of 3 actions can run\n"
            "  rank 0 waits at step 1 (0B0) for 1B0 or 1I0, which no rank has");
}

TEST(Simulation, LongTextsAreCut) {
  std::string csv;
  StageRanks ranks;
  for (int rank = 0; rank < 10; ++rank) {
    csv += std::to_string(rank) + "W0\n";
    ranks.push_back(rank);
  }
  const std::string text = outcome(csv, OrderFormat::kComputeOnly, ranks);
  EXPECT_TRUE(text.ends_with("rank 7 waits at step 0 (7W0) for 7I0, which no rank has\n  and 2 more ranks wait"))
      << text;
}

TEST(Simulation, APartOfAnOverlapMayNeedAnEarlierOne) {
  EXPECT_EQ(outcome("0F0,(1F0;1B0)OVERLAP_F_B,0B0\n", OrderFormat::kComputeOnly, {0, 0}), "ends");
  EXPECT_NE(outcome("0F0,(1B0;1F0)OVERLAP_F_B,0B0\n", OrderFormat::kComputeOnly, {0, 0}), "ends");
}

TEST(Simulation, BubblesAreThoseOfThePapers) {
  // (p - 1) / (m + p - 1), whatever forward and backward cost.
  for (const auto kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B}) {
    EXPECT_NEAR(bubble_of(kind, {4, 4, 8}), 3.0 / 11.0, 1e-12);
    EXPECT_NEAR(bubble_of(kind, {4, 4, 8}, {.backward_input = 0.5, .backward_weight = 1.5}), 3.0 / 11.0, 1e-12);
  }
  // Of v stages per rank: (p - 1) / (v m + p - 1).
  EXPECT_NEAR(bubble_of(ScheduleKind::kInterleaved1F1B, {4, 8, 8}), 3.0 / 19.0, 1e-12);
  EXPECT_NEAR(bubble_of(ScheduleKind::kGPipe, {1, 1, 3}), 0.0, 1e-12);
  // ZB1P has a third of 1F1B's where all three parts cost the same; ZBV none in its middle.
  const double zero_bubble = bubble_of(ScheduleKind::kInterleavedZeroBubble, {4, 4, 8});
  EXPECT_NEAR(zero_bubble, 3.0 / 27.0, 1e-12);
  EXPECT_LT(bubble_of(ScheduleKind::kZBVZeroBubble, {4, 8, 16}), zero_bubble);
  EXPECT_LT(bubble_of(ScheduleKind::kDualPipeV, {4, 8, 16}), 0.2);
}

TEST(Simulation, StagesMayCostMore) {
  const auto order = parse_csv("plan.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  const auto timeline = simulate(*order, {0, 1}, OrderFormat::kComputeOnly, {.stage_factors = {1.0, 3.0}});
  EXPECT_DOUBLE_EQ(timeline->duration, 1.0 + 18.0 + 2.0);
  EXPECT_DOUBLE_EQ(timeline->bubble(), 1.0 - (6.0 + 18.0) / 42.0);
}

TEST(Simulation, TheFirstStageMayHaveOneBackward) {
  const auto order = parse_csv("plan.csv", "0F0,0I0,0W0\n1F0,1I0,1W0\n");
  const auto timeline = simulate(*order, {0, 1}, OrderFormat::kComputeOnly,
                                 {.backward_input = 2.0, .backward_weight = 3.0, .is_first_stage_in_one_part = true});
  EXPECT_DOUBLE_EQ(timeline->ranks[0][1].end - timeline->ranks[0][1].begin, 0.0);
  EXPECT_DOUBLE_EQ(timeline->ranks[0][2].end - timeline->ranks[0][2].begin, 5.0);
  EXPECT_DOUBLE_EQ(timeline->ranks[1][1].end - timeline->ranks[1][1].begin, 2.0);
}

}  // namespace
}  // namespace cohort::pipeline
