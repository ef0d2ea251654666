// Shard arithmetic against at::chunk and at::cat on tensors whose values are their own indices.
#include "cohort/mesh/shard.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using Numbers = std::vector<int64_t>;

// at::chunk leaves the empty chunks at the end out.
std::vector<at::Tensor> chunks_of(const at::Tensor& tensor, int64_t num_chunks, int64_t dim) {
  auto chunks = tensor.chunk(num_chunks, dim);
  while (static_cast<int64_t>(chunks.size()) < num_chunks) chunks.push_back(tensor.narrow(dim, 0, 0));
  return chunks;
}

// PyTorch's _split_tensor, at this rank.
at::Tensor part_by_chunks(const at::Tensor& tensor, const Placement& placement, int64_t num_ranks, int64_t index) {
  std::vector<at::Tensor> parts;
  for (const auto& piece : chunks_of(tensor, placement.split_factor(), placement.dim())) {
    parts.push_back(chunks_of(piece, num_ranks, placement.dim())[index]);
  }
  return at::cat(parts, placement.dim());
}

at::Tensor part_by_ranges(const at::Tensor& tensor, const std::vector<base::IndexRanges>& held) {
  auto part = tensor;
  for (size_t dim = 0; dim < held.size(); ++dim) part = mesh::take_ranges(part, static_cast<int64_t>(dim), held[dim]);
  return part;
}

void for_each_index(const Numbers& shape, const std::function<void(const Numbers&)>& fn) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  for (int64_t i = 0; i < count; ++i) {
    Numbers index(shape.size());
    int64_t rest = i;
    for (size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) index[axis] = rest % shape[axis];
    fn(index);
  }
}

void expect_parts_by_chunks(const Numbers& global_shape, const Numbers& mesh_shape, const Placements& placements) {
  int64_t count = 1;
  for (const int64_t size : global_shape) count *= size;
  const auto whole = at::arange(count).view(global_shape);
  for_each_index(mesh_shape, [&](const Numbers& coordinate) {
    SCOPED_TRACE(c10::str(c10::IntArrayRef(global_shape), " on ", c10::IntArrayRef(mesh_shape), " at ",
                          c10::IntArrayRef(coordinate), " by ", to_string(placements)));
    auto expected = whole;
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (placements[axis].is_shard_like())
        expected = part_by_chunks(expected, placements[axis], mesh_shape[axis], coordinate[axis]);
    }
    const auto held = mesh::held_ranges(global_shape, mesh_shape, coordinate, placements);
    ASSERT_TRUE(at::equal(part_by_ranges(whole, held), expected));
    const auto part = mesh::compute_local_shape_and_global_offset(global_shape, mesh_shape, coordinate, placements);
    ASSERT_EQ(c10::IntArrayRef(part.shape), expected.sizes());
    for (size_t dim = 0; dim < held.size(); ++dim) {
      for (size_t i = 0; i < held[dim].size(); ++i) {
        ASSERT_GT(held[dim][i].size(), 0);
        ASSERT_TRUE(i == 0 || held[dim][i].begin != held[dim][i - 1].end);
      }
      const bool is_part_empty = held[dim].empty();
      const int64_t first = is_part_empty ? global_shape[dim] : held[dim].front().begin;
      ASSERT_EQ(part.offset[dim], first);
    }
  });
}

TEST(Shard, ChunksAreThoseOfChunk) {
  for (int64_t size = 0; size < 10; ++size) {
    for (int64_t num_chunks = 1; num_chunks <= 5; ++num_chunks) {
      const auto chunks = chunks_of(at::arange(size), num_chunks, 0);
      for (int64_t index = 0; index < num_chunks; ++index) {
        const auto range = mesh::chunk_range(size, num_chunks, index);
        EXPECT_TRUE(at::equal(chunks[index], at::arange(range.begin, range.end)));
        EXPECT_TRUE(range.size() > 0 || range.begin == size);
        EXPECT_GE(mesh::padded_shard_size(Shard(0), size, num_chunks), range.size());
      }
      EXPECT_EQ(mesh::padded_shard_size(Shard(0), size, num_chunks), (size + num_chunks - 1) / num_chunks);
    }
  }
}

TEST(Shard, OneAxis) {
  for (int64_t size = 0; size < 10; ++size) {
    for (int64_t ranks = 1; ranks <= 5; ++ranks) {
      for (const Placements& placements :
           {Placements{Replicate()}, Placements{Shard(0)}, Placements{StridedShard(0, 1)},
            Placements{StridedShard(0, 2)}, Placements{StridedShard(0, 3)}, Placements{Partial()}}) {
        if (placements[0].is_shard_like() || size > 0) expect_parts_by_chunks({size}, {ranks}, placements);
      }
    }
  }
}

TEST(Shard, TwoAxes) {
  const Placements choices{Replicate(), Shard(0), Shard(1), StridedShard(0, 2), StridedShard(1, 3), Partial()};
  for (int64_t size = 1; size < 10; ++size) {
    for_each_index({3, 3}, [&](const Numbers& less) {
      for (const auto& first : choices) {
        for (const auto& second : choices) {
          expect_parts_by_chunks({size, 10 - size}, {less[0] + 1, less[1] + 1}, {first, second});
        }
      }
    });
  }
}

TEST(Shard, ThreeAxesOnOneDimension) {
  const Placements choices{Replicate(), Shard(0), StridedShard(0, 2), StridedShard(0, 4)};
  for (int64_t size = 1; size < 10; ++size) {
    for_each_index({4, 4, 4}, [&](const Numbers& which) {
      expect_parts_by_chunks({size, 2}, {2, 3, 2}, {choices[which[0]], choices[which[1]], choices[which[2]]});
    });
  }
}

TEST(Shard, NothingOfADimensionWithoutElements) {
  const auto part = mesh::compute_local_shape_and_global_offset({0, 4}, {2}, {1}, {Shard(0)});
  EXPECT_EQ(part, (mesh::LocalShard{{0, 4}, {0, 0}}));
  EXPECT_EQ(mesh::compute_local_shape_and_global_offset({0}, {2}, {1}, {Replicate()}), (mesh::LocalShard{{0}, {0}}));
  EXPECT_EQ(mesh::compute_local_shape_and_global_offset({}, {2}, {1}, {Partial()}), (mesh::LocalShard{{}, {}}));
}

TEST(Shard, NegativeDimsCountFromTheEnd) {
  EXPECT_EQ(mesh::compute_local_shape_and_global_offset({3, 5}, {2}, {1}, {Shard(-1)}),
            (mesh::LocalShard{{3, 2}, {0, 3}}));
}

TEST(Shard, LocalStridesKeepTheOrderOfMemory) {
  EXPECT_EQ(mesh::compute_local_stride({12, 4, 1}, {1, 3, 4}), (Numbers{12, 4, 1}));
  EXPECT_EQ(mesh::compute_local_stride({1, 2, 6}, {2, 3, 2}), (Numbers{1, 2, 6}));
  EXPECT_EQ(mesh::compute_local_stride({4, 1, 12}, {3, 2, 5}), (Numbers{2, 1, 6}));
}

TEST(Shard, PaddingComesAndGoes) {
  const auto tensor = at::arange(6).view({2, 3});
  const auto padded = mesh::pad_tensor(tensor, 1, 2);
  EXPECT_TRUE(at::equal(padded, at::tensor({0, 1, 2, 0, 0, 3, 4, 5, 0, 0}, at::kLong).view({2, 5})));
  EXPECT_TRUE(at::equal(mesh::unpad_tensor(padded, 1, 2), tensor));
  EXPECT_TRUE(mesh::pad_tensor(tensor, 0, 0).is_same(tensor));
  EXPECT_TRUE(mesh::unpad_tensor(tensor, 0, 0).is_same(tensor));
}

TEST(Shard, TakesViewsOfSingleRanges) {
  const auto tensor = at::arange(6);
  EXPECT_EQ(mesh::take_ranges(tensor, 0, {{2, 4}}).data_ptr(), tensor.narrow(0, 2, 1).data_ptr());
  EXPECT_TRUE(at::equal(mesh::take_ranges(tensor, 0, {{4, 6}, {0, 1}}), at::tensor({4, 5, 0}, at::kLong)));
  EXPECT_EQ(mesh::take_ranges(tensor, 0, {}).numel(), 0);
}

TEST(Shard, WrongArgumentsMessage) {
  EXPECT_EQ(error_of([] { mesh::chunk_range(3, 0, 0); }), "Expected num_chunks > 0, got 0");
  EXPECT_EQ(error_of([] { mesh::chunk_range(-1, 2, 0); }), "[cohort] Expected size >= 0, got -1");
  EXPECT_EQ(error_of([] { mesh::chunk_range(3, 2, 2); }), "[cohort] Expected 0 <= index < num_chunks, got 2 of 2");
  EXPECT_EQ(error_of([] { mesh::shard_ranges(StridedShard(0, 0), 3, 2, 0); }),
            "[cohort] Expected split_factor > 0, got 0");
  EXPECT_EQ(error_of([] {
              mesh::held_ranges({3}, {2}, {0, 0}, {Shard(0)});
            }),
            "[cohort] Expected one placement and one coordinate per mesh dim, but found 1 placements, 2 coordinates "
            "and 1 mesh "
            "dims.");
  EXPECT_EQ(error_of([] { mesh::held_ranges({3}, {2}, {0}, {Shard(1)}); }),
            "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
  EXPECT_EQ(error_of([] {
              mesh::compute_local_stride({1}, {2, 3});
            }),
            "[cohort] Expected a stride per dimension, but found 1 strides and 2 dimensions.");
}

}  // namespace
}  // namespace cohort
