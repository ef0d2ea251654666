// A plan on an unmodified vision transformer: it computes what one process does.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/comm_counts.h"
#include "cohort/extras/models/vision_transformer.h"
#include "cohort/parallel/tensor/parallelize_module.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::run_workers;

DeviceMesh plan_mesh() {
  if (!is_initialized()) init_process_group(test::backend_of_tests().c_str());
  return init_device_mesh("cpu", {get_world_size()}, {"tp"});
}

// `tensor`: a DTensor, or one that each rank has whole.
double difference_to(const at::Tensor& expected, const at::Tensor& tensor) {
  const at::Tensor whole = is_dtensor(tensor) ? DTensor(tensor.detach()).full_tensor() : tensor.detach();
  return (whole - expected.detach()).abs().max().item<double>();
}

COHORT_WORKER(plan_vision_transformer) {
  const auto mesh = plan_mesh();
  const auto make = [] {
    at::manual_seed(4);
    models::VisionTransformer vit(models::VisionTransformerOptions{
        .num_classes = 10, .image_size = 16, .patch_size = 8, .embed_dim = 16, .depth = 2, .num_heads = 4});
    vit->to(at::kDouble);
    return vit;
  };
  auto alone = make(), together = make();
  parallelize_module(*together, mesh,
                     {{"blocks.*.attn.qkv", ColwiseParallel{.num_parts = 3, .num_heads = 4}},
                      {"blocks.*.mlp.fc1", ColwiseParallel()},
                      {"blocks.*.*.proj", RowwiseParallel()},
                      {"blocks.*.*.fc2", RowwiseParallel()},
                      {"head", ColwiseParallel()}});
  const auto images = at::randn({2, 3, 16, 16}, at::kDouble);
  const auto before = dtensor::comm_counts();
  const auto scores = together->forward(images);
  REQUIRE((dtensor::comm_counts() - before).total() == 4);
  REQUIRE(DTensor(scores).placements() == Placements{Shard(1)});
  const auto targets = at::tensor({3, 7}, at::kLong);
  at::cross_entropy_loss(scores, targets).backward();
  at::cross_entropy_loss(alone->forward(images), targets).backward();
  const auto ps = alone->parameters(), dps = together->parameters();
  for (size_t i = 0; i < ps.size(); ++i) REQUIRE(difference_to(ps[i].grad(), dps[i].grad()) < 1e-10);
}

TEST(DTensorModels, AVisionTransformerByAPlan) { run_workers("plan_vision_transformer").expect_success(); }

}  // namespace
}  // namespace cohort
