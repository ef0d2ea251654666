// Complex gradients in communication hooks, which see the real view of a bucket: two numbers for each element.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "cohort/parallel/ddp/comm_hook_type.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"
#include "cohort/parallel/ddp/hooks/compress_hooks.h"
#include "cohort/parallel/ddp/hooks/power_sgd_hook.h"
#include "cohort/parallel/ddp/reducer.h"
#include "tests/support/inline_engine.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::ddp {
namespace {

using test::error_of;
using test::run_rank_threads;

// A matrix, a vector and a number, complex, and a real vector: in two buckets, as they are of two dtypes.
struct ComplexWeights {
  std::vector<at::Tensor> tensors;
  ComplexWeights() {
    for (const auto& sizes : std::vector<std::vector<int64_t>>{{8, 6}, {5}, {}}) {
      tensors.push_back(torch::zeros(sizes, at::TensorOptions(at::kComplexFloat).requires_grad(true)));
    }
    tensors.push_back(torch::zeros({7}, at::requires_grad()));
  }

  /// Matrices are of rank 1, and so is their mean. Imaginary parts are other numbers than real ones.
  at::Tensor gradient(size_t i, double rank) const {
    const auto& tensor = tensors[i];
    const auto rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    const auto left = torch::arange(1.0, rows + 1.0).view({-1, 1}) * (1 + 2 * rank + static_cast<double>(i));
    const auto right = torch::arange(1.0, tensor.numel() / rows + 1.0).view({1, -1});
    const auto real = (left * right).view(tensor.sizes());
    return tensor.is_complex() ? at::complex(real, (left * (right * -3 + 1)).view(tensor.sizes())) : real;
  }
  at::Tensor mean(size_t i) const { return gradient(i, 0.5); }

  void step(Reducer& reducer, int rank) const {
    for (const auto& tensor : tensors) tensor.mutable_grad().reset();
    reducer.prepare();
    auto loss = torch::zeros({});
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto product = tensors[i] * gradient(i, rank).conj();
      loss = loss + (product.is_complex() ? at::real(product) : product).sum();
    }
    loss.backward();
  }
  // `tolerance`: a part of the largest number of all.
  void require_means(double factor, double tolerance) const {
    double largest = 0;
    for (size_t i = 0; i < tensors.size(); ++i) largest = std::max(largest, mean(i).abs().max().item<double>());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto expected = mean(i) * factor;
      const auto off = (tensors[i].grad() - expected).abs().max().item<double>();
      if (!(off <= tolerance * factor * largest)) {
        throw std::runtime_error(c10::str("weight ", i, " is ", tensors[i].grad(), "\nnot\n", expected));
      }
    }
  }
};

ReducerOptions of_engine(const Group& group, Engine engine) {
  ReducerOptions options;
  options.process_group = group;
  options.engine = engine;
  return options;
}

class ComplexHookOfEngine : public testing::TestWithParam<Engine> {};

TEST_P(ComplexHookOfEngine, SeesTheRealViewAndMayWriteIntoIt) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const ComplexWeights weights;
    Reducer reducer(weights.tensors, of_engine(group, GetParam()));
    const auto hook = [&](std::nullptr_t, GradBucket& bucket) {
      REQUIRE(bucket.buffer().dim() == 1);
      REQUIRE(bucket.buffer().scalar_type() == at::kFloat);
      const auto gradients = bucket.gradients();
      REQUIRE(gradients.size() == bucket.parameters().size());
      for (size_t k = 0; k < gradients.size(); ++k) {
        for (size_t i = 0; i < weights.tensors.size(); ++i) {
          if (!weights.tensors[i].is_same(bucket.parameters()[k])) continue;
          const auto own = weights.gradient(i, rank);
          REQUIRE(at::equal(gradients[k], own.is_complex() ? at::view_as_real(own) : own));
        }
      }
      bucket.buffer().mul_(3);
      return allreduce_hook(group, bucket);
    };
    reducer.register_comm_hook(nullptr, hook);
    for (int step = 0; step < 3; ++step) {
      reducer.prepare_forward();
      weights.step(reducer, rank);
      weights.require_means(3, 1e-6);
    }
  });
}

TEST_P(ComplexHookOfEngine, EachOfOursReducesBothParts) {
  run_rank_threads(2, [](int rank, const Group& group) {
    for (auto type = DDPCommHookType::kAllReduce; type < DDPCommHookType::kNoop;
         type = static_cast<DDPCommHookType>(static_cast<int>(type) + 1)) {
      const ComplexWeights weights;
      Reducer reducer(weights.tensors, of_engine(group, GetParam()));
      register_ddp_comm_hook(type, reducer, group);
      weights.step(reducer, rank);
      weights.require_means(1, 2e-2);
    }
    const ComplexWeights weights;
    Reducer reducer(weights.tensors, of_engine(group, GetParam()));
    reducer.register_comm_hook(group, fp16_compress_wrapper(allreduce_hook));
    weights.step(reducer, rank);
    weights.require_means(1, 2e-2);
  });
}

TEST_P(ComplexHookOfEngine, PowerSGDTakesTheMatrixOfBothParts) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const ComplexWeights weights;
    Reducer reducer(weights.tensors, of_engine(group, GetParam()));
    PowerSGDOptions options;
    options.process_group = group;
    options.start_power_sgd_iter = 2;
    options.min_compression_rate = 1;
    options.orthogonalization_epsilon = 1e-8;
    const auto state = std::make_shared<PowerSGDState>(options);
    reducer.register_comm_hook(state, power_sgd_hook);
    for (int step = 0; step < 4; ++step) {
      reducer.prepare_forward();
      weights.step(reducer, rank);
      weights.require_means(1, 1e-4);
    }
    // 8 x 12 numbers travel as 8 + 12, a number's two as they are.
    const auto stats = state->compression_stats();
    REQUIRE(stats.numel_before_compression == 2 * (96 + 10 + 2 + 7));
    REQUIRE(stats.numel_after_compression == 2 * (20 + 7 + 2 + 7));
  });
}

INSTANTIATE_TEST_SUITE_P(Engines, ComplexHookOfEngine, testing::Values(Engine::kCohort, Engine::kC10d, kInline));

// The future's value may be complex, too.
TEST(ComplexHook, MayGiveComplexNumbers) {
  run_rank_threads(1, [](int, const Group& group) {
    for (const auto engine : {Engine::kCohort, kInline}) {
      const ComplexWeights weights;
      Reducer reducer(weights.tensors, of_engine(group, engine));
      reducer.register_comm_hook(nullptr, [](std::nullptr_t, GradBucket& bucket) {
        if (!bucket.parameters()[0].is_complex()) return completed_future(bucket.buffer() * 2);
        return completed_future(at::view_as_complex(bucket.buffer().view({-1, 2})) * 2);
      });
      weights.step(reducer, 0);
      for (size_t i = 0; i < weights.tensors.size(); ++i) {
        REQUIRE(at::allclose(weights.tensors[i].grad(), weights.gradient(i, 0) * 2));
      }
    }
  });
}

TEST(ComplexGradients, HaveARealNorm) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const ComplexWeights weights;
    Reducer reducer(weights.tensors, of_engine(group, Engine::kCohort));
    reducer.track_gradient_norm();
    weights.step(reducer, rank);
    double squares = 0;
    for (size_t i = 0; i < weights.tensors.size(); ++i) squares += weights.mean(i).abs().square().sum().item<double>();
    const auto norm = reducer.gradient_norm();
    REQUIRE(norm.scalar_type() == at::kFloat);
    REQUIRE(std::abs(norm.item<double>() - std::sqrt(squares)) < 1e-4 * std::sqrt(squares));
  });
}

TEST(ComplexHook, TooFewNumbersMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    for (const auto engine : {Engine::kCohort, kInline}) {
      const std::vector<at::Tensor> weight{torch::zeros({5}, at::TensorOptions(at::kComplexFloat).requires_grad(true))};
      Reducer reducer(weight, of_engine(group, engine));
      reducer.register_comm_hook(nullptr, [](std::nullptr_t, GradBucket& bucket) {
        return completed_future(bucket.buffer().narrow(0, 0, 5));
      });
      reducer.prepare();
      REQUIRE_EQUAL(
          error_of([&] { at::real(weight[0]).sum().backward(); }),
          "[cohort] DDP communication hook: the future's tensor must have as many elements as the bucket, 10, got "
          "sizes [5]");
    }
  });
}

}  // namespace
}  // namespace cohort::ddp
