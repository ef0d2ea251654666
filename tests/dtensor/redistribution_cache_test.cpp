// Redistributed operands are cached: the reduced value of a Partial as long as the tensor, the gathered value of a sharded tensor
// until another one is gathered.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/comm_counts.h"
#include "cohort/dtensor/wrapper/wrapper.h"
#include "tests/dtensor/op_cases.h"
#include "tests/mesh/thread_mesh.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::numbers;
using test::run_rank_threads;
using test::thread_mesh;

// ---- summands ----

int64_t reductions_of(const std::function<void()>& what) {
  const auto before = dtensor::comm_counts();
  what();
  const auto counts = dtensor::comm_counts() - before;
  REQUIRE(counts.total() == counts.all_reduce);
  return counts.all_reduce;
}

// As an operation makes them; 3 together.
DTensor summands(int rank, const DeviceMesh& mesh) {
  return DTensor(DTensor::from_local(at::full({3}, rank + 1.0), mesh, {Partial()}) * 1);
}

TEST(PartialTensors, AreReducedOnceForwardAndBackward) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto x = summands(rank, mesh).detach().requires_grad_();
    at::Tensor loss;
    REQUIRE(reductions_of([&] { loss = at::gelu(x).sum() + x.square().sum() + x.exp().sum(); }) == 1);
    at::Tensor gradient;
    REQUIRE(reductions_of([&] { gradient = torch::autograd::grad({loss}, {x})[0]; }) == 0);
    const auto plain = at::full({3}, 3.0).requires_grad_();
    const auto expected =
        torch::autograd::grad({at::gelu(plain).sum() + plain.square().sum() + plain.exp().sum()}, {plain})[0];
    REQUIRE(at::allclose(DTensor(gradient).full_tensor(), expected));
  });
}

TEST(PartialTensors, AreReducedAgainOnceTheyAreWritten) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto x = summands(rank, mesh);
    const auto require_exp = [&](double value, int64_t num_reductions) {
      at::Tensor result;
      REQUIRE(reductions_of([&] { result = x.exp(); }) == num_reductions);
      REQUIRE(at::allclose(DTensor(result).to_local(), at::full({3}, value).exp()));
    };
    require_exp(3, 1);
    require_exp(3, 0);
    x.mul_(2);
    require_exp(6, 1);
    x.view({3, 1}).fill_(2);
    require_exp(2, 1);
    DTensor(x.redistribute(x.placements())).mul_(2);  // another wrapper of the same part
    require_exp(4, 1);
    x.view({3, 1}).zero_();
    require_exp(0, 1);
    require_exp(0, 0);
  });
}

// About what one rank does by itself the others cannot know, and reducing needs them all.
TEST(PartialTensors, AreAsAllRanksKnowThem) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto require_exp = [&](const DTensor& x, double value, int64_t num_reductions) {
      at::Tensor result;
      REQUIRE(reductions_of([&] { result = x.exp(); }) == num_reductions);
      REQUIRE(at::allclose(DTensor(result).to_local(), at::full({3}, value, at::kDouble).exp()));
    };
    double value = 2;
    const auto given = DTensor::from_local(at::full({3}, 1.0, at::kDouble), mesh, {Partial()});
    for (const auto& x : {given, DTensor(given.view({3})), DTensor(given.redistribute({Partial()}))}) {
      require_exp(x, value++, 1);
      if (rank == 0) x.to_local().add_(1);
    }
    require_exp(given, 5, 1);
    const DTensor made(given * 1);
    for (const auto& x : {made, DTensor(made.view({3})), DTensor(made.redistribute({Partial()}))}) {
      require_exp(x, 5, 1);
      if (rank == 0) x.to_local().add_(1);
      require_exp(x, 5, 0);
    }
  });
}

TEST(LocalTensors, ThatWereSavedMustNotBeWritten) {
  run_rank_threads(2, [](int, const Group& group) {
    const DTensor w = distribute_tensor(at::ones({4}), thread_mesh(group, {2}), {Shard(0)}, std::nullopt);
    const auto part = w.to_local().requires_grad_();
    const auto loss = part.square().sum();
    const at::NoGradGuard no_grad;
    DTensor(w).mul_(2);
    REQUIRE(error_of([&] { loss.backward(); }).find("modified by an inplace operation") != std::string::npos);
  });
}

TEST(PartialTensors, AreShardedFromTheCachedValue) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto x = summands(rank, mesh);
    const DTensor other = distribute_tensor(at::ones({3}), mesh, {Shard(0)}, std::nullopt);
    x.exp();
    REQUIRE(reductions_of([&] {
              const DTensor result(at::maximum(x, other));
              REQUIRE(result.placements() == Placements{Shard(0)} && result.to_local().eq(3).all().item<bool>());
            }) == 0);
  });
}

// ---- cut tensors ----

int64_t gathers_of(const std::function<void()>& what) {
  const auto before = dtensor::comm_counts();
  what();
  const auto counts = dtensor::comm_counts() - before;
  REQUIRE(counts.total() == counts.all_gather);
  return counts.all_gather;
}

at::Tensor sharded_tensor(const at::Tensor& whole, const DeviceMesh& mesh, int64_t dim) {
  return DTensor(distribute_tensor(whole, mesh, {Shard(dim)}, std::nullopt));
}

void require_whole(const at::Tensor& actual, const at::Tensor& expected) {
  REQUIRE(at::allclose(DTensor(actual.detach()).full_tensor(), expected));
}

// Rows of x are cut, and so are columns of what it is multiplied with: x is gathered.
TEST(GatheredTensors, AreGatheredOnceForOperationsThatFollow) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto whole = numbers({2, 3, 4}), w = numbers({4, 20}, 1);
    const auto x = sharded_tensor(whole, mesh, 1), columns = sharded_tensor(w, mesh, 1);
    at::Tensor y, z, of_transposed;
    REQUIRE(gathers_of([&] {
              y = x.matmul(columns);
              z = x.reshape({6, 4}).mm(columns * 2);
              of_transposed = columns.t().mm(x.reshape({6, 4}).t());
            }) == 1);
    require_whole(y, whole.matmul(w));
    require_whole(z, whole.reshape({6, 4}).mm(w * 2));
    require_whole(of_transposed, w.t().mm(whole.reshape({6, 4}).t()));
    // A transposed one first.
    const auto other = sharded_tensor(whole + 1, mesh, 1);
    REQUIRE(gathers_of([&] {
              of_transposed = columns.t().mm(other.reshape({6, 4}).t());
              y = other.matmul(columns);
            }) == 1);
    require_whole(of_transposed, w.t().mm((whole + 1).reshape({6, 4}).t()));
    require_whole(y, (whole + 1).matmul(w));
  });
}

TEST(GatheredTensors, AreGatheredAgainOnceTheyAreWritten) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto whole = numbers({3, 4}), w = numbers({4, 20}, 1);
    const auto x = sharded_tensor(whole.clone(), mesh, 0), columns = sharded_tensor(w, mesh, 1);
    const auto require_product = [&](double factor, int64_t num_gathers) {
      at::Tensor result;
      REQUIRE(gathers_of([&] { result = x.mm(columns); }) == num_gathers);
      require_whole(result, (whole * factor).mm(w));
    };
    require_product(1, 1);
    require_product(1, 0);
    x.mul_(2);
    require_product(2, 1);
    x.t().mul_(2);
    require_product(4, 1);
    DTensor(x).to_local().mul_(2);
    require_product(8, 1);
    // A result that shares its operand's memory must not get the cached value.
    at::_unsafe_view(x, {2, 6}).zero_();
    require_product(8, 0);
  });
}

TEST(GatheredTensors, AreKeptUntilTheNextOne) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto x = sharded_tensor(numbers({3, 4}), mesh, 0), columns = sharded_tensor(numbers({4, 20}, 1), mesh, 1);
    x.mm(columns);
    REQUIRE(dtensor::dtensor_data(x).cached.local.defined());
    {
      const auto other = x * 2;
      other.mm(columns);
      REQUIRE(!dtensor::dtensor_data(x).cached.local.defined());
    }
    REQUIRE(gathers_of([&] { x.mm(columns); }) == 1);
    const auto gathers_for_two = [&](bool is_leaf) {
      const auto leaf = x.detach().requires_grad_();
      const auto input = is_leaf ? leaf : leaf * 1;
      return gathers_of([&] {
        input.mm(columns);
        input.mm(columns);
      });
    };
    // Of what an optimizer might write nothing is kept.
    REQUIRE(gathers_for_two(/*is_leaf=*/false) == 1 && gathers_for_two(/*is_leaf=*/true) == 2);
  });
}

// A rank's part may have a single row, whose place in memory does not tell how the others' lie.
TEST(GatheredTensors, HaveTheSameStridesOnAllRanks) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto strides_of = [&](int64_t num_rows) {
      return (sharded_tensor(numbers({num_rows, 4}), mesh, 0).t() * 2).strides().vec();
    };
    REQUIRE(strides_of(4) == std::vector<int64_t>({1, 4}));
    REQUIRE(strides_of(3) == std::vector<int64_t>({1, 4}));  // one rank has a single row
    REQUIRE(sharded_tensor(numbers({3, 4}), mesh, 0).t().strides() == c10::IntArrayRef({1, 4}));
  });
}

// A view that a rank writes is written memory, whoever asks afterwards.
TEST(GatheredTensors, AreGatheredAgainOnceAViewIsWritten) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto whole = numbers({4, 3}), w = numbers({3, 8}, 1);
    const auto x = sharded_tensor(whole, mesh, 0), columns = sharded_tensor(w, mesh, 1);
    for (const auto& view : {x.detach(), x.t()}) {
      x.mm(columns);
      const auto before = DTensor(x.detach()).full_tensor();
      x.mm(columns);
      DTensor(view).to_local().mul_(2);
      require_whole(x.mm(columns), before.mul(2).mm(w));
    }
  });
}

TEST(GatheredTensors, KeepNothingAfterTheyHaveGone) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto w = sharded_tensor(numbers({3, 8}, 1), mesh, 1);
    at::Tensor x = sharded_tensor(numbers({4, 3}), mesh, 0) * 2;
    x.mm(w);
    const auto storage = dtensor::dtensor_data(x).cached.local.storage().getWeakStorageImpl();
    REQUIRE(!storage.expired());
    x.reset();
    // Gloo's thread may hold its work, and so the tensor, for a moment longer.
    for (int i = 0; i < 100'000 && !storage.expired(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    REQUIRE(storage.expired());
  });
}

}  // namespace
}  // namespace cohort
