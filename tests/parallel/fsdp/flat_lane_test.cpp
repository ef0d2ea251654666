// The arithmetic of gathering and reducing.
#include "cohort/parallel/fsdp/gathered/flat_lane.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/fsdp/tensors/divide_factors.h"

namespace cohort::fsdp {
namespace {

// The numbers of PyTorch's _get_gradient_divide_factors.
TEST(DivideFactors, AsPyTorchs) {
  const auto of = [](DivideRequest request) { return divide_factors(request); };
  const auto averaged = of({at::kFloat, 4, 2});
  EXPECT_EQ(averaged.before, 1);
  EXPECT_EQ(averaged.after, 1);
  EXPECT_EQ(averaged.reduce_scatter, ReduceOp::AVG);
  EXPECT_EQ(averaged.all_reduce, ReduceOp::AVG);
  EXPECT_EQ(of({at::kBFloat16, 1, 1}).reduce_scatter, ReduceOp::SUM);
  EXPECT_EQ(of({at::kFloat, 4, 2, 4.0}).reduce_scatter, ReduceOp::AVG);
  EXPECT_EQ(of({at::kFloat, 4, 2, 4.0}).all_reduce, ReduceOp::SUM);
  EXPECT_EQ(of({at::kFloat, 4, 2, 3.0}).reduce_scatter, ReduceOp::PREMUL_SUM);
  struct Case {
    int num_shards, num_replicas;
    double before, after;
  };
  for (const auto& [num_shards, num_replicas, before, after] :
       {Case{2, 1, 2, 1}, {4, 1, 2, 2}, {8, 1, 4, 2}, {4, 4, 4, 4}, {3, 1, 2, 1.5}, {6, 1, 4, 1.5}, {1, 1, 1, 1}}) {
    const auto half = of({at::kHalf, num_shards, num_replicas});
    EXPECT_EQ(half.before, before) << num_shards;
    EXPECT_EQ(half.after, after) << num_shards;
    EXPECT_EQ(half.reduce_scatter, ReduceOp::SUM);
  }
  const auto sums = of({at::kFloat, 4, 2, {}, true});
  EXPECT_EQ(sums.before, 1);
  EXPECT_EQ(sums.after, 8);
  EXPECT_EQ(sums.all_reduce, ReduceOp::SUM);
}

TEST(FlatLane, RowsHoldChunksOfAllSizes) {
  for (int num_ranks = 1; num_ranks <= 5; ++num_ranks) {
    for (int64_t size = 0; size <= 11; ++size) {
      const Chunking chunking{{size, 2}, 0, num_ranks};
      const auto whole = at::arange(2 * size, at::kFloat).view({size, 2}) + 1;
      const auto rows = at::full({num_ranks, chunking.chunk()}, -1.0);
      copy_to_rows(whole, chunking, rows);
      const auto chunks = size > 0 ? whole.chunk(num_ranks) : std::vector<at::Tensor>();
      for (int rank = 0; rank < num_ranks; ++rank) {
        const auto has_rows = static_cast<size_t>(rank) < chunks.size();
        const auto chunk = has_rows ? chunks[rank].reshape({-1}) : at::empty({0});
        EXPECT_EQ(c10::multiply_integers(chunking.shard_sizes(rank)), chunk.numel());
        EXPECT_TRUE(at::equal(rows[rank].narrow(0, 0, chunk.numel()), chunk));
        EXPECT_EQ(rows[rank].narrow(0, chunk.numel(), chunking.chunk() - chunk.numel()).abs().sum().item<float>(), 0);
      }
      const auto back = at::zeros_like(whole);
      copy_from_rows(rows, chunking, back);
      EXPECT_TRUE(at::equal(back, whole));
    }
  }
  const Chunking columns{{3, 4, 2}, 1, 2};
  const auto whole = at::arange(24, at::kFloat).view({3, 4, 2});
  const auto rows = at::empty({2, columns.chunk()});
  copy_to_rows(whole, columns, rows);
  EXPECT_TRUE(at::equal(rows[1].view({3, 2, 2}), whole.chunk(2, 1)[1]));
  const auto back = at::zeros_like(whole);
  copy_from_rows(rows, columns, back);
  EXPECT_TRUE(at::equal(back, whole));
}

TEST(FlatLane, OneLaneForEachKey) {
  const auto lanes = make_lanes({7, 5, 7, 7, 5}, {10, 20, 1, 2, 3});
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_THAT(lanes[0].members, testing::ElementsAre(0, 2, 3));
  EXPECT_THAT(lanes[0].offsets, testing::ElementsAre(0, 10, 11));
  EXPECT_EQ(lanes[0].width, 13);
  EXPECT_THAT(lanes[1].members, testing::ElementsAre(1, 4));
  EXPECT_EQ(lanes[1].width, 23);
}

}  // namespace
}  // namespace cohort::fsdp
