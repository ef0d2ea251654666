// What is done with the gradients of parameters on several meshes and of plain ones, as if they were one process's; and losses
// over classes that ranks share out.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <limits>
#include <sstream>

#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/distribute_module.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/comm_counts.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/optim/grad_scaler.h"
#include "tests/dtensor/op_cases.h"
#include "tests/mesh/thread_mesh.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::numbers;
using test::run_rank_threads;
using test::Tensors;
using test::thread_mesh;

// ---- several meshes ----

at::Tensor parameter_with(const at::Tensor& gradient) {
  auto parameter = at::zeros_like(gradient).requires_grad_();
  parameter.mutable_grad() = gradient.clone();
  return parameter;
}

Tensors whole_gradients() {
  return {numbers({5, 3}, 1), numbers({3}, 2), numbers({2, 4}, 3), numbers({4}, 4), numbers({6}, 5)};
}

// On a square of ranks: cut by one axis, the other, both; replicated; plain.
Tensors parameters_on(const DeviceMesh& square, const Tensors& gradients) {
  const std::vector<std::pair<DeviceMesh, Placements>> places{{square, {Shard(0), Replicate()}},
                                                              {square["b"], {Shard(0)}},
                                                              {square, {Shard(1), Shard(0)}},
                                                              {square["a"], {Replicate()}}};
  Tensors parameters;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto lie = [&](const at::Tensor& whole) {
      return DTensor(distribute_tensor(whole, places[i].first, places[i].second, std::nullopt));
    };
    parameters.push_back(lie(at::zeros_like(gradients[i])).requires_grad_());
    parameters.back().mutable_grad() = lie(gradients[i]);
  }
  parameters.push_back(parameter_with(gradients.back()));
  return parameters;
}

at::Tensor whole_gradient(const at::Tensor& parameter) {
  const auto gradient = parameter.grad();
  return is_dtensor(gradient) ? DTensor(gradient).full_tensor() : gradient;
}

COHORT_WORKER(dtensor_clipping) {
  init_process_group(test::backend_of_tests().c_str());
  const auto square = init_device_mesh("cpu", {2, 2}, {"a", "b"});
  for (const double order : {2.0, 1.0, 3.0, std::numeric_limits<double>::infinity(), 0.0}) {
    Tensors plain;
    for (const auto& gradient : whole_gradients()) plain.push_back(parameter_with(gradient));
    const auto parameters = parameters_on(square, whole_gradients());
    const auto expected = nn::utils::clip_grad_norm_(plain, 0.5, order);
    const auto norm = nn::utils::clip_grad_norm_(parameters, 0.5, order);
    REQUIRE(!is_dtensor(norm) && at::allclose(norm, expected));
    for (size_t i = 0; i < plain.size(); ++i) REQUIRE(at::allclose(whole_gradient(parameters[i]), plain[i].grad()));
    REQUIRE(parameters[0].grad()._version() > 0);
    Tensors gradients;
    for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
    nn::utils::clip_grads_with_norm_(plain, 0.1, nn::utils::get_total_norm(gradients, order), order == 1);
    nn::utils::clip_grads_with_norm_(parameters, 0.1, nn::utils::get_total_norm(gradients, order));
    nn::utils::clip_grad_value_(plain, 0.01);
    nn::utils::clip_grad_value_(parameters, 0.01);
    for (size_t i = 0; i < plain.size(); ++i) REQUIRE(at::allclose(whole_gradient(parameters[i]), plain[i].grad()));
  }
}

TEST(DTensorGradients, AreClippedByTheNormOverAllMeshes) {
  test::run_workers("dtensor_clipping", {.world_size = 4}).expect_success();
}

TEST(DTensorGradients, ThatArePartialAreSummedBeforeTheNorm) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const DTensor parameter = distribute_tensor(at::zeros({2}), mesh, {Replicate()}, std::nullopt);
    const at::Tensor leaf = parameter.detach().requires_grad_();
    leaf.mutable_grad() = DTensor::from_local(at::tensor({rank == 0 ? 5.F : -2.F, 4.F * rank}), mesh, {Partial()});
    REQUIRE(nn::utils::clip_grad_norm_(leaf, 1.0).item<float>() == 5);
    REQUIRE(at::allclose(whole_gradient(leaf), at::tensor({0.6F, 0.8F})));
  });
}

COHORT_WORKER(dtensor_scaler) {
  init_process_group(test::backend_of_tests().c_str());
  const auto square = init_device_mesh("cpu", {2, 2}, {"a", "b"});
  // Where the number is that is not finite: nowhere, on some ranks only.
  for (const int bad : {-1, 0, 2}) {
    auto gradients = whole_gradients();
    if (bad >= 0) gradients[bad].view(-1)[0] = std::numeric_limits<double>::infinity();
    const auto parameters = parameters_on(square, gradients);
    torch::optim::SGD optimizer(parameters, 1.0);
    amp::GradScaler scaler({.device = at::kCPU, .init_scale = 4});
    scaler.scale(at::ones({}));
    scaler.unscale_(optimizer);
    if (bad < 0) REQUIRE(at::allclose(whole_gradient(parameters[2]), gradients[2] / 4));
    scaler.step(optimizer);
    scaler.update();
    REQUIRE(scaler.has_stepped() == (bad < 0) && scaler.get_scale() == (bad < 0 ? 4 : 2));
  }
}

// Of a leaf that no module has.
TEST(DTensorGradients, ThatArePartialAreUnscaled) {
  run_rank_threads(1, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {1});
    const DTensor whole = distribute_tensor(at::zeros({2}), mesh, {Replicate()}, std::nullopt);
    const at::Tensor leaf = whole.detach().requires_grad_();
    leaf.mutable_grad() = DTensor::from_local(at::full({2}, 8.F), mesh, {Partial()}) * 1;
    torch::optim::SGD optimizer({leaf}, 1.0);
    amp::GradScaler scaler({.device = at::kCPU, .init_scale = 4});
    scaler.scale(at::ones({}));
    scaler.unscale_(optimizer);
    REQUIRE(at::equal(whole_gradient(leaf), at::full({2}, 2.F)));
  });
}

TEST(DTensorGradients, ThatAreNotFiniteStopTheStepOnAllRanks) {
  test::run_workers("dtensor_scaler", {.world_size = 4}).expect_success();
}

TEST(DTensorGradients, ForeachOperationsGoTensorByTensor) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    Tensors plain, parts, others;
    for (const auto& whole : {numbers({5, 3}, 1), numbers({3}, 2)}) {
      plain.push_back(whole.clone());
      parts.push_back(DTensor(distribute_tensor(whole.clone(), mesh, {Shard(0)}, std::nullopt)));
      others.push_back(test::positive(whole.sizes(), 9));
    }
    for (const auto& list : {plain, parts}) {
      at::_foreach_mul_(list, 0.5);
      at::_foreach_add_(list, others, 2);
      at::_foreach_addcdiv_(list, others, others, 0.1);
      at::_foreach_lerp_(list, others, 0.25);
      at::_foreach_sqrt_(list);
    }
    const auto norms = at::_foreach_norm(parts), expected = at::_foreach_norm(plain);
    for (size_t i = 0; i < plain.size(); ++i) {
      REQUIRE(at::allclose(DTensor(parts[i]).full_tensor(), plain[i]));
      REQUIRE(at::allclose(DTensor(norms[i]).full_tensor(), expected[i]));
    }
  });
}

// ---- classes that ranks share out ----

TEST(DTensorClasses, NoScoreIsGathered) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto whole = numbers({4, 5}), labels = at::tensor({4, 0, -100, 2}, at::kLong);
    const auto scores = DTensor(distribute_tensor(whole, mesh, {Shard(1)}, std::nullopt)).detach().requires_grad_();
    const auto before = dtensor::comm_counts();
    const auto loss = at::cross_entropy_loss(scores, labels);
    loss.backward();
    const auto counts = dtensor::comm_counts() - before;
    // The largest score, the sum of powers, the weight of the targets; and the sum of gradients.
    REQUIRE(counts.all_reduce == 4 && counts.total() == 4);
    REQUIRE(DTensor(scores.grad()).placements() == Placements{Shard(1)});
    REQUIRE_EQUAL(error_of([&] { at::cross_entropy_loss(scores, labels + 1); }), "Target 5 is out of bounds.");
  });
}

TEST(DTensorClasses, AreSoftInFloat32AtLeast) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto whole = (numbers({3, 7}) * 9).to(at::kBFloat16);
    for (const int64_t num_dims : {1, 2}) {
      const auto scores = num_dims == 1 ? whole[0] : whole;
      const DTensor parts = distribute_tensor(scores, mesh, {Shard(num_dims - 1)}, std::nullopt);
      for (const auto& [ours, expected] :
           {std::pair(parts.log_softmax(-1), scores.log_softmax(-1)), std::pair(parts.softmax(-1), scores.softmax(-1)),
            std::pair(parts.log_softmax(-1, at::kFloat), scores.log_softmax(-1, at::kFloat))}) {
        REQUIRE(ours.dtype() == expected.dtype() && DTensor(ours).placements() == Placements{Shard(num_dims - 1)});
        REQUIRE(at::allclose(DTensor(ours).full_tensor(), expected, 1e-2, 1e-2));
      }
    }
  });
}

// ---- saving and loading ----

COHORT_WORKER(dtensor_torch_load) {
  init_process_group(test::backend_of_tests().c_str());
  const auto mesh = init_device_mesh("cpu", {2});
  std::stringstream file;
  at::manual_seed(1);
  torch::nn::Linear whole(3, 4);
  torch::save(whole, file);
  torch::nn::Linear linear(3, 4);
  const auto shard = [](const std::string&, torch::nn::Module& module, const DeviceMesh& on) {
    dtensor::distribute_parameters(module, on, {{"weight", {Shard(0)}}, {"bias", {Shard(0)}}});
  };
  distribute_module(*linear, mesh, shard);
  std::ostringstream out;
  REQUIRE(error_of([&] { torch::save(linear, out); }).find("[cohort] DTensor: this tensor is distributed") !=
          std::string::npos);
  torch::load(linear, file);
  REQUIRE(at::equal(DTensor(linear->weight.detach()).full_tensor(), whole->weight));
  REQUIRE(DTensor(linear->weight.detach()).to_local().size(0) == 2 &&
          DTensor(linear->bias.detach()).placements() == Placements{Shard(0)});
  linear->forward(at::ones({2, 3})).sum().backward();
  REQUIRE(DTensor(linear->weight.grad()).placements() == Placements{Shard(0)});
  torch::nn::Linear larger(3, 5);
  std::stringstream other;
  torch::save(larger, other);
  REQUIRE_EQUAL(error_of([&] { torch::load(linear, other); }),
                "[cohort] DTensor: a tensor of shape [4, 3] and Float cannot become one of shape [5, 3] and Float\n  "
                "hint: use a file of the same model for torch::load, or load before distribute_module");
  linear->zero_grad();
  linear->bias.set_data(at::ones({4}));
  REQUIRE_EQUAL(error_of([&] {
                  at::linear(at::ones({2, 3}), at::ones({4, 3}), linear->bias).sum().backward();
                }),
                "[cohort] DTensor: a parameter of shape [4] that was distributed is a plain tensor now, so that each "
                "rank would train its own\n  hint: give set_data a DTensor, or call distribute_module once more; "
                "torch::load leaves parameters what they are");
}

TEST(DTensorFiles, TorchLoadGivesEachRankItsParts) { test::run_workers("dtensor_torch_load").expect_success(); }

}  // namespace
}  // namespace cohort
