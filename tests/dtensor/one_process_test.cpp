// Values and shapes in memory that must be those of one process: numbers that are none, small dtypes, tensors with gaps.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/dtensor.h"
#include "tests/mesh/thread_mesh.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"
#include "tests/support/rounding.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_rank_threads;
using test::thread_mesh;

using Change = at::Tensor (*)(const at::Tensor&);

DTensor cut(const at::Tensor& whole, const DeviceMesh& mesh, int64_t dim = 0) {
  return distribute_tensor(whole, mesh, {Shard(dim)}, std::nullopt);
}

// `change` of the whole and of it cut by two ranks along each dim.
void require_as_in_one_process(const at::Tensor& whole, Change change) {
  const auto expected = change(whole);
  run_rank_threads(2, [&](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    for (int64_t dim = 0; dim < whole.dim(); ++dim) {
      const auto result = DTensor(change(cut(whole, mesh, dim))).full_tensor();
      if (result.dtype() == expected.dtype() && at::allclose(result, expected, 2e-3, 1e-5, /*equal_nan=*/true))
        continue;
      throw std::runtime_error(c10::str("dim ", dim, ": expected ", expected.flatten().slice(0, 0, 8), ", got ",
                                        result.flatten().slice(0, 0, 8)));
    }
  });
}

// A head for each rank.
TEST(DTensorAsInOneProcess, HeadsAreViewedAsFeaturesAfterAttention) {
  const auto whole = at::linspace(-1, 1, 2 * 3 * 2 * 4).view({2, 3, 2, 4});
  const auto features = [](const at::Tensor& positions) {
    const auto x = positions.transpose(1, 2);
    return at::scaled_dot_product_attention(x, x, x).transpose(1, 2).view({2, 3, 8});
  };
  run_rank_threads(2, [&](int, const Group& group) {
    const auto x = cut(whole, thread_mesh(group, {2}), 2);
    // Scores, their softmax, and the sum that they weigh.
    REQUIRE(test::are_rounded_alike(DTensor(features(x)).full_tensor(), features(whole), 4 + 3 + 3));
  });
}

TEST(DTensorAsInOneProcess, SumsOfSmallDtypesDoNotOverflow) {
  using T = const at::Tensor&;
  const auto many = at::full({60000, 2}, 2, at::kHalf);
  require_as_in_one_process(many, [](T x) { return x.mean(); });
  require_as_in_one_process(many, [](T x) { return x.mean(0); });
  require_as_in_one_process(many, [](T x) { return x.norm(); });
  require_as_in_one_process(many * 1000, [](T x) { return at::linalg_vector_norm(x, 3, 0); });
  require_as_in_one_process(many, [](T x) { return at::mse_loss(x, at::zeros_like(x)); });
  require_as_in_one_process(many, [](T x) { return at::smooth_l1_loss(x, at::zeros_like(x)); });
  const auto fine = at::linspace(1, 2, 1000).view({500, 2}).to(at::kBFloat16);
  require_as_in_one_process(fine, [](T x) { return x.norm().to(at::kFloat); });
}

TEST(DTensorAsInOneProcess, GradientsOfMeansDoNotOverflow) {
  const auto gradient_of = [](const at::Tensor& x) {
    const auto leaf = x.detach().requires_grad_();
    const auto loss = at::mse_loss(leaf, at::zeros_like(x)) * 20000;
    return torch::autograd::grad({loss}, {leaf})[0];
  };
  require_as_in_one_process(at::full({60000, 2}, 2, at::kHalf), gradient_of);
}

TEST(DTensorAsInOneProcess, WhatIsNoNumberShows) {
  using T = const at::Tensor&;
  for (const int64_t row : {0, 3}) {  // of each rank
    auto whole = at::arange(8, at::kFloat).view({4, 2}) - 3;
    whole[row][1] = std::numeric_limits<float>::quiet_NaN();
    require_as_in_one_process(whole, [](T x) { return x.max(); });
    require_as_in_one_process(whole, [](T x) { return x.min(); });
    require_as_in_one_process(whole, [](T x) { return x.amax(0); });
    require_as_in_one_process(whole, [](T x) { return x.amin(1); });
    require_as_in_one_process(whole, [](T x) { return at::linalg_vector_norm(x, INFINITY); });
    require_as_in_one_process(whole, [](T x) { return at::linalg_vector_norm(x, -INFINITY); });
    // What is Partial is shared out as well.
    require_as_in_one_process(whole, [](T x) {
      const DTensor* parts = is_dtensor(x) ? static_cast<const DTensor*>(&x) : nullptr;
      return parts ? at::Tensor(DTensor(x.amax(0)).redistribute({Shard(0)})) : x.amax(0);
    });
  }
}

TEST(DTensorAsInOneProcess, WordsOutsideOfTheTableAreErrors) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto table = cut(at::arange(8, at::kFloat).view({4, 2}), thread_mesh(group, {2}));
    for (const int64_t word : {-1, 4}) {
      const auto indices = at::tensor({int64_t{1}, word});
      REQUIRE_EQUAL(
          error_of([&] { at::embedding(table, indices); }),
          "[cohort] DTensor: aten::embedding: index " + std::to_string(word) +
              " is outside a table of 4 rows\n  hint: check whether the tokenizer has more words than the model");
    }
    REQUIRE(at::equal(DTensor(at::embedding(table, at::tensor({3, 0}, at::kLong))).full_tensor(),
                      at::tensor({6.f, 7.f, 0.f, 1.f}).view({2, 2})));
  });
}

TEST(DTensorAsInOneProcess, WhatIsInfiniteStaysInItsRow) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto whole = at::arange(8, at::kFloat).view({4, 2});
    whole[0].fill_(std::numeric_limits<float>::infinity());
    const auto table = cut(whole, thread_mesh(group, {2}));
    REQUIRE(at::equal(DTensor(at::embedding(table, at::tensor({3}, at::kLong))).full_tensor(), whole.narrow(0, 3, 1)));
  });
}

// ---- shapes in memory ----

TEST(DTensorAsInOneProcess, StridesAreThoseOfTheWhole) {
  const auto whole = at::arange(12, at::kFloat).view({3, 4});  // one rank has a single row
  const Change changes[] = {[](const at::Tensor& x) { return x.narrow(1, 0, 3); },
                            [](const at::Tensor& x) { return x.slice(0, 0, 3, 2); },
                            [](const at::Tensor& x) { return x.select(1, 2); },
                            [](const at::Tensor& x) { return x.unbind(1)[1]; },
                            [](const at::Tensor& x) { return x.split(2, 1)[1]; },
                            [](const at::Tensor& x) {
                              return x.split_with_sizes({1, 3}, 1)[1];
                            },
                            [](const at::Tensor& x) { return x.t(); },
                            [](const at::Tensor& x) { return x.t().unsqueeze(1); },
                            [](const at::Tensor& x) { return x.t() * 2; },
                            [](const at::Tensor& x) { return x.narrow(1, 0, 3) + 1; },
                            [](const at::Tensor& x) { return at::empty_like(x.t()); },
                            [](const at::Tensor& x) { return at::zeros_like(x.t(), at::MemoryFormat::Contiguous); },
                            [](const at::Tensor& x) { return x.t().detach(); }};
  run_rank_threads(2, [&](int, const Group& group) {
    const auto x = cut(whole, thread_mesh(group, {2}));
    for (size_t i = 0; i < std::size(changes); ++i) {
      const auto expected = changes[i](whole), result = changes[i](x);
      if (result.sizes() == expected.sizes() && result.strides() == expected.strides()) continue;
      throw std::runtime_error(c10::str("change ", i, ": sizes ", result.sizes(), ", strides ", result.strides(),
                                        ", not ", expected.sizes(), ", ", expected.strides()));
    }
    REQUIRE(error_of([&] { x.narrow(1, 0, 3).view(-1); }).find("view size is not compatible") != std::string::npos);
  });
}

TEST(DTensorAsInOneProcess, CopiesAreCopiesOnAllRanks) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto whole = at::zeros({2, 6});  // a single row has no gaps
    const auto x = cut(whole, thread_mesh(group, {2}));
    x.narrow(1, 0, 3).reshape(-1).add_(1);
    REQUIRE(at::equal(x.full_tensor(), whole));
  });
}

COHORT_WORKER(dtensor_random_in_memory_order) {
  init_process_group(test::backend_of_tests().c_str());
  const auto mesh = init_device_mesh("cpu", {2});
  const auto whole = at::ones({5, 7});
  const Change changes[] = {
      [](const at::Tensor& x) { return at::dropout(x.t(), 0.5, /*train=*/true); },
      [](const at::Tensor& x) { return at::rand_like(x.t()); },
      [](const at::Tensor& x) { return at::empty_like(x.t()).uniform_(); },
      [](const at::Tensor& x) { return at::empty_like(x.t()).normal_(); },
      [](const at::Tensor& x) { return at::randint_like(x, 9); },
      [](const at::Tensor& x) { return x.clone().cauchy_(); },
      [](const at::Tensor& x) { return x.clone().geometric_(0.3); },
      [](const at::Tensor& x) { return x.clone().exponential_(); },
      [](const at::Tensor& x) { return x.clone().log_normal_(); },
      [](const at::Tensor& x) { return x.clone().random_(3, 9) + x.clone().random_(5); },
      [](const at::Tensor& x) { return x.clone().bernoulli_(0.3); },
      [](const at::Tensor& x) { return std::get<0>(at::native_dropout(x.t(), 0.5, /*train=*/true)); }};
  for (size_t i = 0; i < std::size(changes); ++i) {
    for (const int64_t dim : {0, 1}) {
      at::manual_seed(7);
      const auto expected = changes[i](whole);
      at::manual_seed(7);
      const auto result = DTensor(changes[i](cut(whole, mesh, dim))).full_tensor();
      if (!at::equal(result, expected))
        throw std::runtime_error(c10::str("change ", i, ": ", result, " not ", expected));
    }
  }
}

COHORT_WORKER(dtensor_random_with_gaps) {
  init_process_group(test::backend_of_tests().c_str());
  const auto fill = [](const at::Tensor& x) {
    at::manual_seed(7);
    x.narrow(1, 1, 4).normal_();
    return x;
  };
  const auto expected = fill(at::ones({5, 7}));
  REQUIRE(at::equal(DTensor(fill(cut(at::ones({5, 7}), init_device_mesh("cpu", {2})))).full_tensor(), expected));
}

TEST(DTensorAsInOneProcess, RandomNumbersAreDrawnInTheOrderOfMemory) {
  test::run_workers("dtensor_random_in_memory_order").expect_success();
  test::run_workers("dtensor_random_with_gaps").expect_success();
}

// ---- arguments that LibTorch refuses ----

TEST(DTensorAsInOneProcess, WrongArgumentsAreLibTorchsErrors) {
  const Change changes[] = {[](const at::Tensor& x) { return x.expand({3}); },
                            [](const at::Tensor& x) {
                              return x.permute({0, 5});
                            },
                            [](const at::Tensor& x) { return x.select(0, 0).add_(x + 1); }};
  run_rank_threads(2, [&](int, const Group& group) {
    const auto whole = at::ones({3, 4});
    const auto x = cut(whole, thread_mesh(group, {2}), 1);
    for (const auto& change : changes) {
      auto error = error_of([&] { change(x); });
      const auto meta = error.find("MetaFloatType");  // which LibTorch was asked with
      if (meta != std::string::npos) error.replace(meta, 4, "CPU");
      REQUIRE_EQUAL(error, error_of([&] { change(whole); }));
    }
    const auto nothing = cut(at::ones({4, 0}), thread_mesh(group, {2}));
    REQUIRE(nothing.split(0, 1).size() == 1);
  });
}

TEST(DTensorAsInOneProcess, AWrongTargetOfOneRankIsAnErrorOnAll) {
  const auto wrong = at::tensor({0, 1, 2, 7}, at::kLong);
  run_rank_threads(4, [&](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2, 2});
    for (const Placement& classes : {Placement(Shard(1)), Placement(Replicate())}) {
      const DTensor scores = distribute_tensor(at::zeros({4, 3}), mesh, {Shard(0), classes}, std::nullopt);
      const DTensor targets = distribute_tensor(wrong, mesh, {Shard(0), Replicate()}, std::nullopt);
      REQUIRE_EQUAL(error_of([&] { at::nll_loss(scores, targets); }),
                    rank < 2 ? "[cohort] DTensor: aten::nll_loss_forward: another rank has a target that is not a class"
                             : "Target 7 is out of bounds.");
    }
  });
}

}  // namespace
}  // namespace cohort
