#include "cohort/mesh/shard_spec.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/mesh/thread_mesh.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_rank_threads;
using test::thread_mesh;
using Numbers = std::vector<int64_t>;

TEST(ShardSpec, DescribesEachRanksPart) {
  run_rank_threads(4, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2, 2});
    const mesh::ShardSpec spec(mesh, {Shard(0), Shard(-1)}, {3, 5}, at::kFloat);
    REQUIRE(spec.local_shape() == (Numbers{rank < 2 ? 2 : 1, rank % 2 == 0 ? 3 : 2}));
    REQUIRE(spec.local_shard().offset == (Numbers{rank < 2 ? 0 : 2, rank % 2 == 0 ? 0 : 3}));
    REQUIRE(spec.local_shard_at({1, 0}) == (mesh::LocalShard{{1, 3}, {2, 0}}));
    REQUIRE(spec.local_stride() == (Numbers{spec.local_shape()[1], 1}));
    REQUIRE(spec.stride() == (Numbers{5, 1}));
    REQUIRE((spec.placements() == Placements{Shard(0), Shard(1)}));
    REQUIRE(spec.num_shards() == 4 && spec.num_shards(0) == 2 && spec.num_shards(1) == 2);
    REQUIRE(spec.is_sharded() && !spec.is_replicated() && !spec.is_partial() && !spec.is_empty());
    REQUIRE_EQUAL(spec.to_string(),
                  "ShardSpec(mesh=DeviceMesh((axis0=2, axis1=2), 'cpu', stride=(2, 1)), placements=(Shard(dim=0), "
                  "Shard(dim=1)), shape=(3, 5), stride=(5, 1), dtype=Float)");
    REQUIRE(spec == mesh::ShardSpec(mesh, {Shard(0), Shard(1)}, {3, 5}, at::kFloat));
    REQUIRE(!(spec == mesh::ShardSpec(mesh, {Shard(0), Shard(1)}, {3, 5}, at::kDouble)));
    REQUIRE(!(spec == mesh::ShardSpec(mesh, {Shard(0), Replicate()}, {3, 5}, at::kFloat)));
    REQUIRE(!(spec == mesh::ShardSpec(mesh, {Shard(0), Shard(1)}, {5, 3}, at::kFloat)));
  });
}

TEST(ShardSpec, KnowsEmptyPartsAndGaps) {
  run_rank_threads(4, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {4});
    const mesh::ShardSpec five(mesh, {Shard(0)}, {5}, at::kFloat);
    REQUIRE(five.is_empty() == (rank == 3));
    REQUIRE(five.local_shard().offset == Numbers{rank == 3 ? 5 : 2 * rank});
    const mesh::ShardSpec strided(mesh, {StridedShard(0, 2)}, {8}, at::kFloat);
    REQUIRE((strided.held_ranges().at(0) == base::IndexRanges{{rank, rank + 1}, {rank + 4, rank + 5}}));
    const mesh::ShardSpec partial(mesh, {Partial()}, {8}, at::kFloat);
    REQUIRE(partial.is_partial() && !partial.is_sharded() && !partial.is_replicated() && partial.num_shards() == 1);
    const mesh::ShardSpec whole(mesh, {Replicate()}, {8, 2}, at::kFloat, {1, 8});
    REQUIRE(whole.is_replicated() && whole.stride() == (Numbers{1, 8}) && whole.local_stride() == (Numbers{1, 8}));
    REQUIRE(mesh::ShardSpec(mesh, {Replicate()}, {}, at::kFloat).local_shape().empty());
  });
}

TEST(ShardSpec, WrongArgumentsMessage) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2, 1});
    const auto error = [&](const Placements& placements, Numbers stride = {}) {
      return error_of([&] { mesh::ShardSpec(mesh, placements, {3, 4}, at::kFloat, stride); });
    };
    REQUIRE_EQUAL(error({Shard(0)}),
                  "`placements` must have the same length as `device_mesh.ndim`! Found placements length: 1, and "
                  "device_mesh.ndim: 2.");
    REQUIRE_EQUAL(error({Shard(2), Replicate()}),
                  "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
    REQUIRE(error({Partial("sum"), Partial("avg")}) == "(no error)");
    REQUIRE_EQUAL(error({Partial("sum"), Partial("max")}),
                  "Mixed Partial reduce types are not supported in the same placement list. Found reduce ops: {'max', "
                  "'sum'}. All Partial placements must use the same reduce op.");
    REQUIRE_EQUAL(error({Shard(0), Shard(1)}, {1}),
                  "[cohort] Expected a stride per dimension, but found 1 strides and 2 dimensions.");
  });
}

}  // namespace
}  // namespace cohort
