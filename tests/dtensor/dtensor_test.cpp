// Making DTensors, taking them apart, and gradients across that border.
#include "cohort/dtensor/api/dtensor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <sstream>

#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/distribute_module.h"
#include "cohort/dtensor/api/factories.h"
#include "tests/mesh/thread_mesh.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_rank_threads;
using test::thread_mesh;
using Numbers = std::vector<int64_t>;

TEST(DTensor, IsMadeOfParts) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto part = at::full({2, 3}, rank);
    const auto tensor = DTensor::from_local(part, mesh, {Shard(-2)});
    REQUIRE(is_dtensor(tensor) && !is_dtensor(part) && !is_dtensor(at::Tensor()));
    REQUIRE(tensor.sizes() == c10::IntArrayRef({4, 3}) && tensor.strides() == c10::IntArrayRef({3, 1}));
    REQUIRE(tensor.placements() == Placements{Shard(0)} && tensor.device_mesh() == mesh);
    REQUIRE(tensor.to_local().is_alias_of(part) && tensor.scalar_type() == part.scalar_type());
    REQUIRE(at::equal(tensor.full_tensor().select(1, 0), at::tensor({0, 0, 1, 1}).to(part.dtype())));
    const auto odd = DTensor::from_local(at::ones({2 - rank}), mesh, {Shard(0)}, {.shape = {3}, .stride = {1}});
    REQUIRE(odd.sum().item<float>() == 3);
    const DTensor again(part, tensor.spec());
    REQUIRE(again.to_local().is_alias_of(part) && again.spec() == tensor.spec());
    REQUIRE(at::equal(again.full_tensor(), tensor.full_tensor()));
  });
}

TEST(DTensor, RunCheckTakesTheFirstRanksValues) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto tensor = DTensor::from_local(at::full({2}, 5 + rank), mesh, {Replicate()}, {.run_check = true});
    REQUIRE(tensor.to_local()[0].item<int64_t>() == 5);
    const auto error =
        error_of([&] { DTensor::from_local(at::ones({1 + rank}), mesh, {Shard(0)}, {.run_check = true}); });
    REQUIRE_EQUAL(
        error,
        "[cohort] DTensor::from_local: no DTensor was made, as the ranks differ: the global shape is (2,) on "
        "rank 0, but (4,) on rank 1\n  hint: set options.shape and options.stride if shards have different sizes");
  });
}

TEST(DTensor, GradientsCrossTheBorder) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto gradient = [&](const Placement& placement, const std::optional<Placements>& grads) {
      const auto local = at::ones({2}).requires_grad_();
      const auto tensor = DTensor::from_local(local, mesh, {placement}, {.grad_placements = grads});
      (tensor.full_tensor() * at::arange(1, tensor.numel() + 1)).sum().backward();
      return local.grad();
    };
    REQUIRE(at::equal(gradient(Replicate(), {}), at::tensor({1.f, 2.f})));
    REQUIRE(at::equal(gradient(Shard(0), {}), at::tensor({1.f, 2.f}) + 2 * rank));
    REQUIRE(at::equal(gradient(Partial(), {}), at::tensor({1.f, 2.f})));
    REQUIRE(at::equal(gradient(Replicate(), Placements{Partial()}), at::tensor({1.f, 2.f}) * (1 - rank)));
    // Each rank's gradient is a summand.
    DTensor whole(distribute_tensor(at::ones({2}), mesh, {Replicate()}, std::nullopt));
    whole.set_requires_grad(true);
    (whole.to_local(Placements{Partial()}) * (rank + 1)).sum().backward();
    REQUIRE(DTensor(whole.grad()).placements() == Placements{Partial()});
    REQUIRE(at::equal(DTensor(whole.grad()).full_tensor(), at::full({2}, 3.f)));
  });
}

// Parts that are lazily conjugated stay so where they lie, and arrive with their own signs elsewhere.
TEST(DTensor, LazyPartsAreMovedWithTheirSigns) {
  run_rank_threads(3, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {3});
    const auto index = at::arange(20.).view({5, 4});  // a third of each number is exact
    const auto numbers = at::complex(index * 3, index * -9 + 3);
    const auto expected = numbers.conj().resolve_conj();
    for (const auto& from : {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1)), Placement(Partial())}) {
      const DTensor tensor(DTensor(distribute_tensor(numbers, mesh, {from}, std::nullopt)).conj());
      REQUIRE(tensor.is_conj() && tensor.to_local().is_conj() && tensor.placements() == Placements{from});
      for (const auto& to : {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
        const auto moved = tensor.redistribute({to});
        REQUIRE(moved.is_conj() == moved.to_local().is_conj());
        REQUIRE(at::equal(moved.full_tensor().resolve_conj(), expected));
      }
      REQUIRE(at::equal(DTensor(tensor.sum()).full_tensor(), expected.sum()));
    }
    const auto part = at::complex(at::arange(4.), at::arange(4.) + rank).conj();
    const auto sum = DTensor::from_local(part, mesh, {Partial()});
    REQUIRE(at::equal(sum.full_tensor(), at::complex(at::arange(4.) * 3, -(at::arange(4.) * 3 + 3))));
    const auto negative = DTensor::from_local(at::imag(part), mesh, {Shard(0)});
    REQUIRE(negative.is_neg() && DTensor(negative.resolve_neg()).to_local().is_neg() == false);
    REQUIRE(at::equal(negative.full_tensor().narrow(0, 4, 4), -(at::arange(4.) + 1)));
  });
}

TEST(DTensor, FactoriesMakeTheirParts) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto zeros = dtensor::zeros({3, 2}, mesh, {Shard(0)});
    REQUIRE(zeros.to_local().size(0) == 2 - rank && zeros.scalar_type() == at::kFloat);
    REQUIRE(at::equal(dtensor::ones({3}, mesh).to_local(), at::ones({3})));
    REQUIRE(at::equal(dtensor::full({3}, 7, mesh, {Partial()}).full_tensor(), at::full({3}, 7)));
    REQUIRE(dtensor::full({3}, 7, mesh).scalar_type() == at::kLong);
    REQUIRE(dtensor::empty({3}, mesh, {Shard(0)}, at::TensorOptions(at::kDouble).requires_grad(true)).requires_grad());
  });
}

COHORT_WORKER(dtensor_random_factories) {
  init_process_group(test::backend_of_tests().c_str());
  const auto mesh = init_device_mesh("cpu", {2});
  at::manual_seed(5);
  const auto rand = dtensor::rand({5, 3}, mesh, {Shard(0)});
  const auto randn = dtensor::randn({5, 3}, mesh, {Shard(1)});
  const auto like = at::rand_like(rand);
  DTensor(randn).uniform_();
  at::manual_seed(5);
  REQUIRE(at::equal(rand.full_tensor(), at::rand({5, 3})));
  at::randn({5, 3});
  REQUIRE(at::equal(DTensor(like).full_tensor(), at::rand({5, 3})));
  REQUIRE(at::equal(randn.full_tensor(), at::empty({5, 3}).uniform_()));
}

COHORT_WORKER(dtensor_outside_the_mesh) {
  init_process_group(test::backend_of_tests().c_str());
  const auto mesh = DeviceMesh("cpu", at::arange(2, at::kLong));
  const auto x = dtensor::ones({4, 3}, mesh, {Shard(0)}, at::kFloat);
  const auto moved = x.redistribute({Replicate()});
  REQUIRE(moved.placements() == Placements{Replicate()} && moved.sizes() == x.sizes());
  REQUIRE(moved.to_local().numel() == (get_rank() < 2 ? 12 : 0));
}

TEST(DTensor, HasItsNewPlacementsOnRanksOutside) {
  test::run_workers("dtensor_outside_the_mesh", {.world_size = 3}).expect_success();
}

TEST(DTensor, RandomNumbersAreThoseOfOneProcess) { test::run_workers("dtensor_random_factories").expect_success(); }

// Where nothing has to move, too: what is not Partial can be written.
TEST(DTensor, IsWrittenByItsPart) {
  for (const int num_ranks : {1, 2}) {
    run_rank_threads(num_ranks, [num_ranks](int, const Group& group) {
      const auto mesh = thread_mesh(group, {num_ranks});
      const DTensor summands(DTensor::from_local(at::ones({3}), mesh, {Partial()}) * 1);
      const DTensor sum = summands.redistribute({Replicate()});
      sum.to_local().mul_(2);
      REQUIRE(at::equal(sum.full_tensor(), at::full({3}, 2.F * num_ranks)));
      REQUIRE(at::equal(summands.full_tensor(), at::full({3}, 1.F * num_ranks)));
    });
  }
}

TEST(DTensor, TellsWhatItIs) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const DTensor tensor = distribute_tensor(at::zeros({2}), mesh, {Shard(0)}, std::nullopt);
    REQUIRE_EQUAL(tensor.to_string(), "DTensor(local_tensor= 0\n[ CPUFloatType{1} ], device_mesh=" + mesh.to_string() +
                                          ", placements=(Shard(dim=0),))");
    std::ostringstream out;
    out << tensor;
    REQUIRE_EQUAL(out.str(), tensor.to_string());
  });
}

TEST(DTensor, WrongArgumentsMessage) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    REQUIRE_EQUAL(error_of([] { DTensor(at::ones({2})); }),
                  "[cohort] DTensor: this tensor is not a DTensor\n  hint: make a DTensor from a full tensor with "
                  "distribute_tensor(x, mesh, placements), or from shards with DTensor::from_local");
    REQUIRE_EQUAL(error_of([&] { DTensor::from_local(at::ones({2}), mesh, {Shard(0)}, {.shape = {4}}); }),
                  "Found shape:(4,), stride:(). Please pass both shape and stride at the same time.");
    REQUIRE_EQUAL(error_of([&] { DTensor::from_local(at::ones({2}), mesh, {}); }),
                  "`placements` must have the same length as `device_mesh.ndim`! Found placements length: 0, and "
                  "device_mesh.ndim: 1.");
    const mesh::ShardSpec spec(mesh, {Shard(0)}, {4}, at::kFloat);
    REQUIRE_EQUAL(error_of([&] { DTensor(at::ones({3}), spec); }),
                  "[cohort] The local tensor has shape (3,), but " + spec.to_string() + " gives this rank (2,)");
  });
}

TEST(DTensor, ModulesKeepTheirParameters) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    torch::nn::Linear linear(3, 5);
    const auto* const identity = linear->weight.unsafeGetTensorImpl();
    const auto whole = linear->weight.detach().clone();
    dtensor::distribute_parameters(*linear, mesh, {{"weight", {Shard(0)}}});
    distribute_module(*linear, mesh);
    REQUIRE(linear->parameters()[0].unsafeGetTensorImpl() == identity && linear->weight.requires_grad());
    REQUIRE(linear->weight.is_leaf() && DTensor(linear->weight).to_local().size(0) == 3 - rank);
    REQUIRE(DTensor(linear->bias).placements() == Placements{Replicate()});
    REQUIRE(rank != 0 || at::equal(DTensor(linear->weight.detach()).to_local(), whole.narrow(0, 0, 3)));
    REQUIRE_EQUAL(
        error_of([&] {
          dtensor::distribute_parameters(*linear, mesh, {{"weigth", {Shard(0)}}});
        }),
        "[cohort] distribute_parameters: torch::nn::LinearImpl has no parameter \"weigth\"\n  hint: it has weight, "
        "bias");
    REQUIRE_EQUAL(error_of([&] { dtensor::distribute_parameter(linear->bias, mesh, {Shard(0)}); }),
                  "[cohort] distribute_parameter: the parameter is a DTensor already, " +
                      DTensor(linear->bias).spec().to_string() +
                      "\n  hint: change its placements with DTensor(x).redistribute(placements)");
    torch::nn::Linear other(3, 5);
    other->forward(at::ones({2, 3})).sum().backward();
    REQUIRE_EQUAL(
        error_of([&] { dtensor::distribute_parameter(other->bias, mesh, {Shard(0)}); }),
        "[cohort] distribute_parameter: the parameter has a gradient, which would stay a plain tensor\n  hint: call "
        "zero_grad() before");
  });
}

}  // namespace
}  // namespace cohort
