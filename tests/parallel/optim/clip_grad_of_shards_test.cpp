// Norms of gradients that ranks have in parts, against those of the whole ones.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <list>

#include "cohort/parallel/optim/clip_grad.h"
#include "tests/parallel/optim/sharded_parameter.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"
#include "tests/support/rounding.h"

namespace cohort::nn::utils {
namespace {

using test::error_of;
using test::run_rank_threads;
using TensorList = std::vector<at::Tensor>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Divided over all ranks, one so that several have no row of it; whole; divided over some ranks; all zeros.
struct FullGradients {
  at::Tensor over_all, first_rank_only, whole, over_some, zeros;

  TensorList list() const { return {over_all, first_rank_only, whole, over_some, zeros}; }
};

FullGradients whole_gradients(at::ScalarType dtype) {
  const auto generator = at::detail::createCPUGenerator(17);  // the ranks are threads
  const auto draw = [&](at::IntArrayRef sizes) { return at::randn(sizes, generator, at::kDouble).to(dtype); };
  return {draw({7}), draw({1, 4}), draw({3}), draw({4, 2}) * 3, at::zeros({6}, dtype)};
}

// The same on this rank. The last parameter never has a gradient.
class ParameterSet {
 public:
  ParameterSet(const FullGradients& gradients, const Group& all, const Group& some) {
    add(gradients.over_all, all);
    add(gradients.first_rank_only, all);
    list.push_back(at::zeros_like(gradients.whole).set_requires_grad(true));
    list.back().mutable_grad() = gradients.whole.clone();
    add(gradients.over_some, some);
    add(gradients.zeros, all);
    list.push_back(shards_.emplace_back(at::ones({5}), some).shard());
  }

  TensorList gradients() const {
    TensorList result;
    for (const auto& parameter : list) {
      if (parameter.grad().defined()) result.push_back(parameter.grad());
    }
    return result;
  }

  TensorList list;

 private:
  void add(const at::Tensor& gradient, const Group& group) {
    shards_.emplace_back(at::zeros_like(gradient), group).set_grad(gradient);
    list.push_back(shards_.back().shard());
  }

  std::list<test::ShardedParameter> shards_;
};

// Of three ranks, the third one has a group of its own, and all of what the others divide.
Group some_ranks(const Group& all) {
  return test::split_rank_threads(
      all, all->getSize() == 3 ? std::vector<std::vector<int>>{{0, 1}, {2}} : std::vector<std::vector<int>>{{0, 1}});
}

class ClipGradOfShards : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, ClipGradOfShards, testing::Values(2, 3));

TEST_P(ClipGradOfShards, TotalNormIsThatOfTheFullGradients) {
  run_rank_threads(GetParam(), [](int, const Group& all) {
    const auto some = some_ranks(all);
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const auto whole = whole_gradients(dtype);
      const ParameterSet parameters(whole, all, some);
      // bfloat16: the norm of norms, each of which is rounded to it.
      const double tolerance = dtype == at::kDouble  ? 1e-12
                               : dtype == at::kFloat ? 1e-6
                                                     : test::rounding(dtype, 2, 1.0);
      for (const double order : {0.0, 1.0, 2.0, 3.0, 0.5, -1.0, kInfinity, -kInfinity}) {
        const auto norm = get_total_norm(gradients_of(parameters.list), order);
        const auto expected = get_total_norm(whole.list(), order);
        if (!at::allclose(norm.to(at::kDouble), expected.to(at::kDouble), tolerance, 0)) {
          throw std::runtime_error(c10::str("order ", order, ": ", norm, ", expected ", expected));
        }
        REQUIRE(norm.scalar_type() == dtype && norm.dim() == 0);
      }
      REQUIRE(get_total_norm(gradients_of(parameters.list), 0).item<double>() == 4);
    }
  });
}

TEST_P(ClipGradOfShards, OfNoElementsOnSomeRanks) {
  run_rank_threads(GetParam(), [](int rank, const Group& all) {
    test::ShardedParameter row(at::zeros({1, 3}), all);
    const auto norm = [&](double order) { return get_total_norm(gradients_of(row.shard()), order).item<double>(); };
    for (const double order : {0., 1., 2., kInfinity}) REQUIRE(norm(order) == 0);
    if (rank == 0) row.set_grad(at::tensor({3.F, -4.F, 1.F}).view({1, 3}));
    REQUIRE(norm(0) == 1);
    REQUIRE(norm(1) == 8);
    REQUIRE(norm(kInfinity) == 4);
    REQUIRE(norm(-kInfinity) == 1);
  });
}

TEST_P(ClipGradOfShards, ClippingInTwoCallsIsClippingInOne) {
  run_rank_threads(GetParam(), [](int, const Group& all) {
    const auto some = some_ranks(all);
    for (const double order : {2.0, 1.0, 0.0, kInfinity}) {
      const auto whole = whole_gradients(at::kFloat);
      const ParameterSet once(whole, all, some);
      const ParameterSet twice(whole, all, some);
      const auto norm = get_total_norm(gradients_of(twice.list), order);
      REQUIRE(at::equal(clip_grad_norm_(once.list, 0.5, order), norm));
      clip_grads_with_norm_(twice.list, 0.5, norm);
      for (size_t i = 0; i < once.gradients().size(); ++i) {
        REQUIRE(at::equal(once.gradients()[i], twice.gradients()[i]));
        const auto expected = whole.list()[i] * 0.5 / (norm + 1e-6);
        const auto got = once.gradients()[i];
        const auto& group = i == 3 ? some : all;
        REQUIRE(at::allclose(got, i == 2 ? expected : test::rows_of(expected, group), 1e-5, 1e-7));
      }
    }
  });
}

TEST_P(ClipGradOfShards, NonFiniteNormOfAnotherRankMessage) {
  run_rank_threads(GetParam(), [](int, const Group& all) {
    const auto some = some_ranks(all);
    for (const double element : {kNan, kInfinity}) {
      for (const auto& [order, text] : {std::pair(2.0, "2.0"), {1.0, "1.0"}, {kInfinity, "inf"}}) {
        auto whole = whole_gradients(at::kFloat);
        whole.over_all[0] = element;  // on rank 0
        const ParameterSet parameters(whole, all, some);
        const auto before = parameters.gradients()[2].clone();
        const auto expected = c10::str(
            "The total norm of order ", text,
            " for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this error and scale "
            "the gradients by the non-finite norm anyway, set `error_if_nonfinite=false`");
        REQUIRE_EQUAL(error_of([&] { clip_grad_norm_(parameters.list, 1.0, order, true); }), expected);
        REQUIRE_EQUAL(error_of([&] { get_total_norm(gradients_of(parameters.list), order, true); }), expected);
        REQUIRE(at::equal(parameters.gradients()[2], before));
        const auto norm = get_total_norm(gradients_of(parameters.list), order);
        REQUIRE(std::isnan(element) ? norm.isnan().item<bool>() : norm.isinf().item<bool>());
      }
    }
  });
}

TEST(ClipGrad, TotalNormByWayOfFullParametersIsThatOfTheirGradients) {
  const auto parameter = at::ones({2}).set_requires_grad(true);
  const auto without = at::ones({2}).set_requires_grad(true);
  parameter.mutable_grad() = at::tensor({3.F, 4.F});
  const auto gradients = gradients_of({without, parameter});
  EXPECT_FALSE(gradients.tensors[0].defined());
  EXPECT_TRUE(gradients.groups[1].empty());
  EXPECT_TRUE(at::equal(get_total_norm(gradients), get_total_norm(parameter.grad())));
  EXPECT_EQ(get_total_norm(gradients_of(without)).item<float>(), 0);
}

}  // namespace
}  // namespace cohort::nn::utils
