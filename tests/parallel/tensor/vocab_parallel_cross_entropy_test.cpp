#include "cohort/parallel/tensor/vocab_parallel_cross_entropy.h"

#include <gtest/gtest.h>

#include <limits>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/mesh/shard.h"
#include "tests/parallel/tensor/numbers.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"

namespace cohort {
namespace {

using test::drawn;
using test::error_of;
using test::require_near;
using test::run_workers;

at::Tensor own_classes(const at::Tensor& whole, int64_t dim) {
  const auto range = mesh::chunk_range(whole.size(dim), get_world_size(), get_rank());
  return whole.narrow(dim, range.begin, range.size());
}

void require_cross_entropy(const std::vector<int64_t>& shape, const parallel::ParallelCrossEntropyOptions& options,
                           at::ScalarType dtype = at::kFloat, double tolerance = 1e-5) {
  const int64_t dim = shape.size() > 1 ? 1 : 0, classes = shape[dim];
  auto targets_shape = shape;
  targets_shape.erase(targets_shape.begin() + dim);
  auto targets = (drawn(targets_shape, 3) * 1000).abs().to(at::kLong).remainder(classes);
  if (targets.numel() > 1) targets.view({-1})[1] = options.ignore_index;
  const auto logits = (drawn(shape, 4) * 5 + 100).to(dtype);  // far from 0: only the difference to the greatest counts
  const auto whole = logits.clone().requires_grad_(), own = own_classes(logits, dim).clone().requires_grad_();
  const auto expected =
      at::cross_entropy_loss(whole, targets, options.weight.defined() ? options.weight.to(dtype) : options.weight,
                             options.reduction, options.ignore_index, options.label_smoothing);
  auto own_options = options;
  own_options.num_classes = classes;
  const auto got = parallel::vocab_parallel_cross_entropy(own, targets, own_options);
  REQUIRE(got.scalar_type() == dtype);
  require_near(got, expected, tolerance, "loss");
  const auto cotangent = drawn(expected.sizes().vec(), 5).to(dtype);
  expected.backward(cotangent);
  got.backward(cotangent);
  require_near(own.grad(), own_classes(whole.grad(), dim), tolerance, "gradient");
}

COHORT_WORKER(loss_of_parts) {
  init_process_group({.backend = test::backend_of_tests()});
  for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum, at::Reduction::None}) {
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      for (const int64_t ignored : {-100, 2}) {
        const parallel::ParallelCrossEntropyOptions options{
            .reduction = reduction, .ignore_index = ignored, .label_smoothing = smoothing};
        require_cross_entropy({6, 8}, options);
        require_cross_entropy({6, 5}, options);  // four ranks have 2, 2, 1, 0 classes
        require_cross_entropy({3, 7, 2, 2}, options);
        require_cross_entropy({9}, options);
        require_cross_entropy({6, 8}, options, at::kDouble, 1e-12);
        require_cross_entropy({6, 8}, options, at::kBFloat16, 2e-2);
        auto weighted = options;
        weighted.weight = drawn({8}, 6).abs() + 0.25;
        require_cross_entropy({6, 8}, weighted);
        require_cross_entropy({8}, weighted);
        require_cross_entropy({6, 8}, weighted, at::kDouble, 1e-12);
        weighted.weight = weighted.weight.narrow(0, 1, 5);
        require_cross_entropy({6, 5}, weighted);
        require_cross_entropy({3, 5, 2, 2}, weighted);
      }
    }
  }
  destroy_process_group();
}

TEST(VocabParallelCrossEntropy, IsThatOfAllLogits) {
  for (const int n : {1, 2, 4}) run_workers("loss_of_parts", {.world_size = n}).expect_success();
}

COHORT_WORKER(loss_of_unusual_logits) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto infinity = std::numeric_limits<float>::infinity();
  // Rank 0's classes are impossible in the first row; the second is ignored whatever it is; the third is large.
  const auto logits =
      at::tensor({-infinity, -infinity, 1.F, 2.F, infinity, 0.F, 0.F, 0.F, 3e38F, 3e38F, 0.F, 0.F}).view({3, 4});
  const auto targets = at::tensor({2, -100, 1}, at::kLong);
  const auto whole = logits.clone().requires_grad_(), own = own_classes(logits, 1).clone().requires_grad_();
  const auto expected = at::cross_entropy_loss(whole, targets);
  const auto got = parallel::vocab_parallel_cross_entropy(own, targets);
  require_near(got, expected);
  got.backward();
  expected.backward();
  for (const int64_t row : {0, 2}) require_near(own.grad()[row], own_classes(whole.grad(), 1)[row]);
  REQUIRE(at::equal(own.grad()[1], at::zeros({2})));
  // The mean of nothing is no number, and its gradients are zeros, as in PyTorch.
  for (const auto& weight : {at::Tensor(), at::ones({4})}) {
    const auto part = at::ones({3, 2}).requires_grad_();
    const auto none = parallel::vocab_parallel_cross_entropy(part, at::full({3}, -100, at::kLong), {.weight = weight});
    REQUIRE(none.isnan().item<bool>());
    none.backward();
    REQUIRE(at::equal(part.grad(), at::zeros({3, 2})));
  }
  destroy_process_group();
}

TEST(VocabParallelCrossEntropy, TakesAnyLogits) { run_workers("loss_of_unusual_logits").expect_success(); }

COHORT_WORKER(loss_errors) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto logits = at::zeros({3, 2}).requires_grad_();
  const auto loss = [&](const at::Tensor& targets, const parallel::ParallelCrossEntropyOptions& options = {}) {
    return error_of([&] { parallel::vocab_parallel_cross_entropy(logits, targets, options); });
  };
  const auto targets = at::tensor({0, 1, 3}, at::kLong);
  REQUIRE_EQUAL(loss(at::tensor({0, 4, 1}, at::kLong)), "Target 4 is out of bounds: there are 4 classes.");
  REQUIRE_EQUAL(loss(at::tensor({0, -1, 1}, at::kLong)), "Target -1 is out of bounds: there are 4 classes.");
  REQUIRE_EQUAL(
      loss(at::zeros({2}, at::kLong)),
      "[cohort] vocab_parallel_cross_entropy: logits of shape [3, 2] need int64 targets of shape [3], but got "
      "Long [2]");
  REQUIRE_EQUAL(loss(targets, {.label_smoothing = 1.5}), "label_smoothing must be between 0.0 and 1.0. Got: 1.5");
  REQUIRE_EQUAL(loss(targets, {.weight = at::ones({2})}),
                "[cohort] vocab_parallel_cross_entropy: weight must be floating-point, one number for each of the 4 "
                "classes of all ranks, but is Float [2]");
  if (get_rank() == 1) {
    REQUIRE_EQUAL(loss(targets, {.num_classes = 3}),
                  "[cohort] vocab_parallel_cross_entropy: rank 1 has logits of 2 classes, but its share of 3 is 1: "
                  "ceil(3 / 2) = 2 for each of 2 ranks, so they have 2, 1\n"
                  "  hint: set num_classes to the number of classes of all ranks together");
  }
  REQUIRE_EQUAL(
      error_of([&] {
        parallel::vocab_parallel_cross_entropy(at::zeros({3, 2}, at::kLong), targets);
      }),
      "[cohort] vocab_parallel_cross_entropy: logits must be floating-point, [batch, classes, ...] or [classes], "
      "but are Long [3, 2]");
  const auto value = parallel::vocab_parallel_cross_entropy(logits, targets);
  REQUIRE_EQUAL(error_of([&] { torch::autograd::grad({value}, {logits}, {}, std::nullopt, /*create_graph=*/true); }),
                "[cohort] vocab_parallel_cross_entropy has no second derivatives\n"
                "  hint: call backward() without create_graph");
  barrier();  // no rank leaves while another one connects
  destroy_process_group();
}

TEST(VocabParallelCrossEntropy, SaysWhatDoesNotFit) { run_workers("loss_errors").expect_success(); }

}  // namespace
}  // namespace cohort
