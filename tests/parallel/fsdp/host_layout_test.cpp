#include "cohort/parallel/fsdp/host/host_layout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

namespace cohort::fsdp {
namespace {

TEST(HostLayout, SlicesAreTheChunksOfTorch) {
  for (int64_t rows = 1; rows < 12; ++rows) {
    for (const int64_t columns : {1, 3}) {
      const auto whole = at::arange(rows * columns, at::kLong).view({rows, columns});
      for (int world_size = 1; world_size < 6; ++world_size) {
        const auto chunks = whole.chunk(world_size);
        for (int rank = 0; rank < world_size; ++rank) {
          SCOPED_TRACE(testing::Message() << rows << "x" << columns << ", rank " << rank << " of " << world_size);
          const auto slice = slice_of({rows, columns}, rank, world_size);
          const auto sizes = shard_sizes({rows, columns}, rank, world_size);
          const bool has_chunk = static_cast<size_t>(rank) < chunks.size();
          const auto expected = has_chunk ? chunks[rank] : whole.narrow(0, 0, 0);
          EXPECT_EQ(sizes, expected.sizes().vec());
          EXPECT_TRUE(at::equal(whole.view({-1}).narrow(0, slice.begin, slice.count), expected.reshape({-1})));
        }
      }
    }
  }
}

TEST(HostLayout, NoTwoTensorsOnOneCacheLine) {
  const auto layout = lay_out({1, 0, 64, 65});
  EXPECT_EQ(layout.offsets, (std::vector<size_t>{0, 64, 64, 128}));
  EXPECT_EQ(layout.num_bytes, 256u);
}

TEST(HostLayout, ChunksGoFromTheLastToTheFirst) {
  const auto chunks = split_into_chunks({kChunkBytes, 8, kChunkBytes - 8, 8, 8});
  EXPECT_EQ(chunks, (std::vector<std::vector<size_t>>{{4, 3, 2}, {1, 0}}));
  EXPECT_TRUE(split_into_chunks({}).empty());
}

}  // namespace
}  // namespace cohort::fsdp
