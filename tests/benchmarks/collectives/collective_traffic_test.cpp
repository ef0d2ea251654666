#include "benchmarks/collectives/collective_traffic.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cohort::bench {
namespace {

constexpr size_t kPart = 1 << 20;

CollectiveCase make_case(Op op, int num_ranks, Memory memory = Memory::kPrivate) {
  return {.op = op, .num_bytes = kPart * static_cast<size_t>(num_ranks), .num_ranks = num_ranks, .memory = memory};
}

// In parts of N/P.
std::pair<size_t, size_t> parts(const CollectiveCase& what, int rank = 0, TrafficPlan plan = TrafficPlan::kWhole) {
  const Traffic traffic = count_traffic(plan_traffic(what, rank, plan));
  return {traffic.loaded / kPart, traffic.stored / kPart};
}
using Pair = std::pair<size_t, size_t>;

TEST(Traffic, OfAllReduceInPrivateMemory) {
  // Whole: stage N, then N = own + staged. Two ranks: 6 loads and 4 stores of N/2.
  EXPECT_EQ(parts(make_case(Op::kAllReduce, 2)), Pair(6, 4));
  // Cut: stage N/2; N/2 = own + staged, written twice; N/2 from staged.
  EXPECT_EQ(parts(make_case(Op::kAllReduce, 2), 0, TrafficPlan::kCut), Pair(4, 4));
  // Cut with 8 ranks: 7 + 8 + 7 loads, 7 + 2 + 7 stores; whole: 8 + 64, 8 + 8.
  EXPECT_EQ(parts(make_case(Op::kAllReduce, 8), 3, TrafficPlan::kCut), Pair(22, 16));
  EXPECT_EQ(parts(make_case(Op::kAllReduce, 8)), Pair(72, 16));
}

TEST(Traffic, OfOperationsWithARootDependsOnTheRank) {
  EXPECT_EQ(parts(make_case(Op::kBroadcast, 4), 0), Pair(4, 4));
  EXPECT_EQ(parts(make_case(Op::kBroadcast, 4), 1), Pair(4, 4));
  EXPECT_EQ(parts(make_case(Op::kReduce, 4), 0), Pair(16, 4)) << "the root stages nothing";
  EXPECT_EQ(parts(make_case(Op::kReduce, 4), 1), Pair(4, 4));
  EXPECT_EQ(parts(make_case(Op::kReduce, 4), 0, TrafficPlan::kCut), Pair(3 + 4 + 3, 3 + 1 + 3));
  EXPECT_EQ(parts(make_case(Op::kReduce, 4), 2, TrafficPlan::kCut), Pair(3 + 4, 3 + 1));
}

TEST(Traffic, OfTheOthersInPrivateMemory) {
  EXPECT_EQ(parts(make_case(Op::kReduceScatter, 4)), Pair(3 + 4, 3 + 1));
  EXPECT_EQ(parts(make_case(Op::kAllGather, 4)), Pair(1 + 3, 2 + 3));
  EXPECT_EQ(parts(make_case(Op::kAllToAll, 4)), Pair(1 + 3 + 3, 1 + 3 + 3));
  EXPECT_EQ(parts(make_case(Op::kSendRecv, 2)), Pair(4, 4)) << "there and back";
  EXPECT_EQ(parts(make_case(Op::kBarrier, 4)), Pair(0, 0));
}

TEST(Traffic, InSharedMemoryIsShared) {
  const auto shared = [](Op op) { return parts(make_case(op, 4, Memory::kShared)); };
  EXPECT_EQ(shared(Op::kAllReduce), Pair(4, 4));
  EXPECT_EQ(shared(Op::kReduce), Pair(4, 1));
  EXPECT_EQ(shared(Op::kReduceScatter), Pair(4, 1));
  EXPECT_EQ(shared(Op::kBroadcast), Pair(1, 3));
  EXPECT_EQ(shared(Op::kAllGather), Pair(1, 4));
  EXPECT_EQ(shared(Op::kAllToAll), Pair(4, 4));
}

TEST(Traffic, StaysInsideTheTensors) {
  for (const Memory memory : {Memory::kPrivate, Memory::kShared}) {
    for (const Op op : kAllOps) {
      for (const int num_ranks : {2, 3, 8}) {
        if (op == Op::kSendRecv && num_ranks > 2) continue;
        const auto what = make_case(op, num_ranks, memory);
        const auto buffers = plan_buffers(what, 0);
        const size_t written = buffers.output_bytes > 0 ? buffers.output_bytes : buffers.input_bytes;
        for (const TrafficPlan plan : {TrafficPlan::kWhole, TrafficPlan::kCut}) {
          for (int rank = 0; rank < num_ranks; ++rank) {
            for (const Move& move : plan_traffic(what, rank, plan)) {
              for (const size_t read : move.reads)
                EXPECT_LE(read + move.num_bytes, buffers.input_bytes) << case_name(what);
              for (const size_t write : move.writes) EXPECT_LE(write + move.num_bytes, written) << case_name(what);
            }
          }
        }
      }
    }
  }
}

// Every byte of the result must be written once.
TEST(Traffic, WritesTheWholeResult) {
  for (const TrafficPlan plan : {TrafficPlan::kWhole, TrafficPlan::kCut}) {
    for (const Op op : {Op::kAllReduce, Op::kAllGather, Op::kReduceScatter, Op::kAllToAll}) {
      const auto what = make_case(op, 4);
      const auto buffers = plan_buffers(what, 0);
      size_t written = 0;
      for (const Move& move : plan_traffic(what, 1, plan)) written += move.num_bytes * move.writes.size();
      EXPECT_EQ(written, buffers.output_bytes > 0 ? buffers.output_bytes : buffers.input_bytes) << name_of(op);
    }
  }
}

}  // namespace
}  // namespace cohort::bench
