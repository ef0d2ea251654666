// Whole models of the library, unmodified, whose parameters are DTensors: step by step what one process calculates.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/distribute_module.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/comm_counts.h"
#include "cohort/extras/models/resnet.h"
#include "cohort/extras/models/vision_transformer.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

constexpr int64_t kNumClasses = 5;

void shard_vit(const std::string& name, torch::nn::Module& module, const DeviceMesh& mesh) {
  if (name.ends_with("qkv")) {
    dtensor::distribute_parameters(module, mesh, {{"weight", {StridedShard(0, 3)}}, {"bias", {StridedShard(0, 3)}}});
  } else if (name.ends_with("fc1") || name == "head") {
    dtensor::distribute_parameters(module, mesh, {{"weight", {Shard(0)}}, {"bias", {Shard(0)}}});
  } else if (name.ends_with("attn.proj") || name.ends_with("fc2")) {
    dtensor::distribute_parameters(module, mesh, {{"weight", {Shard(1)}}});
  }
}

// Channels between the two convolutions of a block, and the classes.
void shard_resnet(const std::string& name, torch::nn::Module& module, const DeviceMesh& mesh) {
  const bool is_in_block = name.starts_with("layer");
  const Placements rows{Shard(0)};
  if (is_in_block && name.ends_with(".conv1")) dtensor::distribute_parameters(module, mesh, {{"weight", rows}});
  if (is_in_block && name.ends_with(".bn1")) {
    dtensor::distribute_parameters(module, mesh,
                                   {{"weight", rows}, {"bias", rows}, {"running_mean", rows}, {"running_var", rows}});
  }
  if (is_in_block && name.ends_with(".conv2")) dtensor::distribute_parameters(module, mesh, {{"weight", {Shard(1)}}});
  if (name == "fc") dtensor::distribute_parameters(module, mesh, {{"weight", rows}, {"bias", rows}});
}

at::Tensor whole_of(const at::Tensor& tensor) {
  return is_dtensor(tensor) ? DTensor(tensor.detach()).full_tensor() : tensor.detach();
}

void require_equal_tensors(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& expected) {
  REQUIRE(ours.size() == expected.size());
  for (size_t i = 0; i < ours.size(); ++i) REQUIRE(at::allclose(whole_of(ours[i]), expected[i].detach(), 1e-8, 1e-8));
}

// Returns what a step communicates.
template <class Model>
dtensor::CommCounts require_training_is_alike(Model& alone, Model& together, const PartitionFn& partition,
                                              int64_t image_size) {
  init_process_group(test::backend_of_tests().c_str());
  const auto mesh = init_device_mesh("cpu", {get_world_size()}, {"tp"});
  alone->to(at::kDouble);
  together->to(at::kDouble);
  distribute_module(*together, mesh, partition);
  const auto options = torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01);
  torch::optim::SGD alone_optimizer(alone->parameters(), options), together_optimizer(together->parameters(), options);
  dtensor::CommCounts counts;
  for (int64_t step = 0; step < 3; ++step) {
    at::manual_seed(step);
    const auto images = at::randn({4, 3, image_size, image_size}, at::kDouble);
    const auto labels = at::randint(kNumClasses, {4}, at::kLong);
    const auto run = [&](Model& model, torch::optim::SGD& optimizer) {
      optimizer.zero_grad();
      const auto loss = at::cross_entropy_loss(model->forward(images), labels, {}, at::Reduction::Mean, -100, 0.1);
      loss.backward();
      optimizer.step();
      return loss;
    };
    const auto expected = run(alone, alone_optimizer);
    const auto before = dtensor::comm_counts();
    const auto loss = run(together, together_optimizer);
    counts = dtensor::comm_counts() - before;
    require_equal_tensors({loss}, {expected});
    require_equal_tensors(together->parameters(), alone->parameters());
    require_equal_tensors(together->buffers(), alone->buffers());
  }
  alone->eval();
  together->eval();
  const auto images = at::randn({2, 3, image_size, image_size}, at::kDouble);
  require_equal_tensors({together->forward(images)}, {alone->forward(images)});
  return counts;
}

COHORT_WORKER(dtensor_vit) {
  const auto make = [] {
    at::manual_seed(1);
    return models::VisionTransformer(models::VisionTransformerOptions{
        .num_classes = kNumClasses, .image_size = 16, .patch_size = 8, .embed_dim = 24, .depth = 2, .num_heads = 4});
  };
  auto alone = make(), together = make();
  const auto counts = require_training_is_alike(alone, together, shard_vit, 16);
  REQUIRE(counts.all_gather == 0 && counts.all_to_all == 0);
}

TEST(DTensorModels, VisionTransformer) {
  for (const int size : {2, 4}) test::run_workers("dtensor_vit", {.world_size = size}).expect_success();
}

COHORT_WORKER(dtensor_resnet) {
  const auto make = [] {
    at::manual_seed(1);
    return models::resnet18({.num_classes = kNumClasses, .width = 8, .is_small_input = true});
  };
  auto alone = make(), together = make();
  const auto counts = require_training_is_alike(alone, together, shard_resnet, 8);
  REQUIRE(counts.all_gather == 0 && counts.all_to_all == 0);
}

TEST(DTensorModels, ResNet18) {
  for (const int size : {2, 4}) test::run_workers("dtensor_resnet", {.world_size = size}).expect_success();
}

}  // namespace
}  // namespace cohort
