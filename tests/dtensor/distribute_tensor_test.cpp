// Tensors cut and put together again, on meshes of threads: every combination of placements, sizes that do not divide.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/full_tensor.h"
#include "tests/mesh/thread_mesh.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_rank_threads;
using test::thread_mesh;
using Numbers = std::vector<int64_t>;

// Whole numbers, so that sums are exact, that differ by index and, where it should not matter, by rank.
at::Tensor whole_of(const Numbers& shape, int rank) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::arange(count, at::kDouble).view(shape) * 12 + 1000 * rank;
}

std::vector<Placements> all_placements(int64_t num_axes, const Placements& choices) {
  std::vector<Placements> result{{}};
  for (int64_t axis = 0; axis < num_axes; ++axis) {
    std::vector<Placements> longer;
    for (const auto& placements : result) {
      for (const auto& choice : choices) {
        longer.push_back(placements);
        longer.back().push_back(choice);
      }
    }
    result = std::move(longer);
  }
  return result;
}

void require_part(const DTensor& tensor, const at::Tensor& whole) {
  auto part = whole;
  const auto spec = tensor.spec();
  const auto held = spec.held_ranges();
  for (size_t dim = 0; dim < held.size(); ++dim) part = mesh::take_ranges(part, static_cast<int64_t>(dim), held[dim]);
  // Partial("sum") has shared the value out.
  for (size_t axis = 0; axis < spec.placements().size(); ++axis) {
    const auto& placement = spec.placements()[axis];
    if (placement == Partial()) part = part / spec.mesh().size(static_cast<int64_t>(axis));
  }
  REQUIRE(tensor.sizes() == whole.sizes() && at::equal(tensor.to_local(), part));
  REQUIRE(tensor.to_local().is_contiguous());
}

void try_mesh(const Numbers& mesh_shape, const Numbers& shape, const Placements& choices) {
  int size = 1;
  for (const int64_t ranks : mesh_shape) size *= static_cast<int>(ranks);
  run_rank_threads(size, [&](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, mesh_shape);
    for (const auto& placements : all_placements(mesh.ndim(), choices)) {
      const auto whole = whole_of(shape, 0);
      const auto sent = distribute_tensor(whole_of(shape, rank), mesh, placements);
      require_part(sent, whole);
      const auto cut = distribute_tensor(whole, mesh, placements, std::nullopt);
      require_part(cut, whole);
      if (!at::equal(sent.full_tensor(), whole)) {
        throw std::runtime_error(to_string(placements) + " is not put together again");
      }
    }
  });
}

const Placements kAll{Replicate(), Shard(0), Shard(1), StridedShard(0, 2), Partial()};

TEST(DistributeTensor, OneRank) { try_mesh({1}, {3, 2}, kAll); }

TEST(DistributeTensor, OneAxis) {
  for (const int64_t rows : {0, 1, 4, 5}) try_mesh({2}, {rows, 3}, kAll);
  for (const int64_t rows : {2, 7}) try_mesh({4}, {rows, 3}, kAll);
}

TEST(DistributeTensor, TwoAxes) {
  try_mesh({2, 2}, {5, 3}, kAll);
  try_mesh({2, 3}, {7, 2}, kAll);
}

TEST(DistributeTensor, ThreeAxes) { try_mesh({2, 2, 2}, {7, 5}, {Replicate(), Shard(0), StridedShard(0, 3)}); }

TEST(DistributeTensor, ReducesByEachOperation) {
  run_rank_threads(3, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {3});
    const auto full = [&](const char* op, int64_t value) {
      const DTensor summands(at::full({2}, value, at::kDouble), mesh::ShardSpec(mesh, {Partial(op)}, {2}, at::kDouble));
      const auto result = summands.full_tensor();
      REQUIRE(summands.to_local()[0].item<int64_t>() == value);  // not in place
      return result[1].item<double>();
    };
    REQUIRE(full("sum", rank + 2) == 9);
    REQUIRE(full("avg", rank + 2) == 3);
    REQUIRE(full("min", rank + 2) == 2);
    REQUIRE(full("max", rank + 2) == 4);
    REQUIRE(full("product", rank + 2) == 24);
    const DTensor bits(at::full({1}, 1 << rank, at::kLong), mesh::ShardSpec(mesh, {Partial("bor")}, {1}, at::kLong));
    REQUIRE(bits.full_tensor().item<int64_t>() == 7);
  });
}

TEST(DistributeTensor, ComesFromTheSourceRank) {
  run_rank_threads(4, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2, 2});
    for (const auto& placements : all_placements(2, {Replicate(), Shard(0)})) {
      const auto whole = whole_of({3, 2}, 3);  // number 1 of both axes
      const auto sharded = distribute_tensor(whole_of({3, 2}, rank), mesh, placements, 1);
      require_part(sharded, whole);
    }
  });
}

TEST(DistributeTensor, LayoutsAndDtypes) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto whole = whole_of({3, 5}, 0);
    const auto sharded = distribute_tensor(whole_of({3, 5}, rank).t(), mesh, {Shard(1)});
    REQUIRE(at::equal(sharded.full_tensor(), whole.t()));
    REQUIRE(sharded.strides() == c10::IntArrayRef({1, 5}));
    for (const auto dtype : {at::kBool, at::kLong, at::kBFloat16, at::kComplexFloat}) {
      const auto few = whole.remainder(2).to(dtype);
      const auto part = distribute_tensor(few, mesh, {Shard(0)});
      REQUIRE(part.to_local().scalar_type() == dtype && part.scalar_type() == dtype);
      REQUIRE(at::equal(part.full_tensor(), few));
    }
    const auto scalar = distribute_tensor(at::full({}, 4 + rank, at::kDouble), mesh, {Replicate()});
    REQUIRE(scalar.full_tensor().item<double>() == 4);
  });
}

TEST(DistributeTensor, GivesALeafOfItsOwn) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto leaf = whole_of({4}, 0).requires_grad_();
    const at::Tensor tensor = distribute_tensor(leaf, mesh, {Shard(0)});
    REQUIRE(is_dtensor(tensor) && tensor.requires_grad() && tensor.is_leaf());
    tensor.square().sum().backward();
    REQUIRE(!leaf.grad().defined());
    const DTensor gradient(tensor.grad());
    REQUIRE(gradient.placements() == Placements{Shard(0)});
    REQUIRE(at::equal(gradient.to_local(), 2 * whole_of({4}, 0).narrow(0, 2 * rank, 2)));
    REQUIRE(!distribute_tensor(at::ones({4}), mesh, {Shard(0)}).requires_grad());
  });
}

TEST(DistributeTensor, ReplicatesWithoutPlacements) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto tensor = distribute_tensor(whole_of({3}, rank), thread_mesh(group, {2, 1}));
    REQUIRE((tensor.placements() == Placements{Replicate(), Replicate()}));
    REQUIRE(at::equal(tensor.to_local(), whole_of({3}, 0)));
  });
}

TEST(DistributeTensor, GivesADTensorBackThatLiesSoAlready) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto tensor = distribute_tensor(whole_of({3, 2}, 0), mesh, {Shard(1)});
    REQUIRE(distribute_tensor(tensor, mesh, {Shard(1)}).is_same(tensor));
    REQUIRE_EQUAL(error_of([&] { distribute_tensor(tensor, mesh, {Shard(0)}); }),
                  "Cannot distribute a DTensor with placements (Shard(dim=1),) to a different placements "
                  "[Shard(dim=0)]. do you want to call `redistribute` instead?");
    const auto square = thread_mesh(group, {2, 1});
    REQUIRE_EQUAL(error_of([&] {
                    distribute_tensor(tensor, square, {Shard(1), Replicate()});
                  }),
                  "Cannot distribute a DTensor with device mesh " + mesh.to_string() + " to a different device mesh " +
                      square.to_string() + ".");
  });
}

TEST(DistributeTensor, MetaTensorsTravelWithoutData) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto meta = at::empty({3, 4}, at::TensorOptions(at::kMeta));
    const auto part = distribute_tensor(meta, mesh, {Shard(0)}).to_local();
    REQUIRE(part.is_meta() && part.size(0) == 2 - rank);
    REQUIRE(distribute_tensor(meta, mesh, {Replicate()}).to_local().is_meta());
  });
}

// Checkpoints and fully_shard, which have parts beside their description.
TEST(DistributeTensor, PartsComeTogetherInNewMemory) {
  run_rank_threads(1, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {1});
    const auto part = whole_of({3}, 0);
    const auto whole = dtensor::gathered(part, mesh::ShardSpec(mesh, {Shard(0)}, {3}, at::kDouble));
    REQUIRE(at::equal(whole, part) && !whole.is_alias_of(part));
    REQUIRE(dtensor::gathered(part, mesh::ShardSpec(mesh, {Replicate()}, {3}, at::kDouble)).is_alias_of(part));
  });
}

TEST(DistributeTensor, WrongArgumentsMessage) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto error = [&](const at::Tensor& tensor, const Placements& placements) {
      return error_of([&] { distribute_tensor(tensor, mesh, placements); });
    };
    REQUIRE_EQUAL(error(at::ones({2}).requires_grad_() + 1, {Shard(0)}),
                  "`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!");
    REQUIRE_EQUAL(error(at::ones({2}), {Partial("product")}),
                  "Replicate to Partial(product) conversion is not supported.");
    REQUIRE_EQUAL(error(at::ones({}), {Shard(0)}), "Dimension specified as 0 but tensor has no dimensions");
    const mesh::ShardSpec spec(mesh, {Shard(0)}, {4}, at::kFloat);
    REQUIRE_EQUAL(error_of([&] { dtensor::gathered(at::ones({3}), spec); }),
                  "[cohort] The local tensor has shape (3,), but " + spec.to_string() + " gives this rank (2,)");
    const mesh::ShardSpec odd(mesh, {Partial("median")}, {3}, at::kFloat);
    REQUIRE_EQUAL(error_of([&] { dtensor::gathered(at::ones({3}), odd); }),
                  "[cohort] Partial(median) is not a reduction that this library knows");
  });
}

}  // namespace
}  // namespace cohort
