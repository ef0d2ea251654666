// Training over NCCL on the machine's own GPU, as one rank: every strategy ends where a loop without one does.
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/file/torch_file.h"
#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/comm/group/device.h"
#include "cohort/comm/registry/backend_registry.h"
#include "cohort/dtensor/api/distribute_module.h"
#include "cohort/dtensor/api/factories.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/ddp/hooks/compress_hooks.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"
#include "tests/devices/fsdp/device_blocks.h"
#include "tests/devices/train/device_fit.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temporary_folder.h"

namespace cohort::sim {
namespace {

class NcclTraining : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!is_real() || type() != at::kCUDA || !is_nccl_available()) GTEST_SKIP() << "needs a GPU and NCCL";
  }
};

using Blocks = fsdp::test::BlockNet<std::shared_ptr<fsdp::test::Block>>;

Weights ddp_weights(const std::function<void(DistributedDataParallel<Blocks>&)>& set_up, ddp::Options options,
                    bool has_zero) {
  auto net = fsdp::test::plain_net();
  net->to(cohort::current_device());
  DistributedDataParallel<Blocks> model(net, options);
  if (set_up) set_up(model);
  std::unique_ptr<torch::optim::Optimizer> optimizer =
      std::make_unique<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(0.01));
  if (has_zero) {
    optimizer.reset(new ZeroRedundancyOptimizer(
        ZeroRedundancyOptimizer::make<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(0.01))));
  }
  for (int64_t step = 0; step < kNumSteps; ++step) {
    loss_of_batch([&](const at::Tensor& x) { return model(x.to(cohort::current_device())); }, 0, 10 * step).backward();
    optimizer->step();
    optimizer->zero_grad();
  }
  return weights_of(*net);
}

COHORT_WORKER(nccl_strategies) {
  install_requested_devices();
  init_process_group();
  const auto expected = train_in_one_process(1, {});
  const auto here = cohort::current_device();
  for_each_engine([&](ddp::Engine engine) {
    REQUIRE(are_close(ddp_weights({}, {.engine = engine}, false), expected));
    REQUIRE(are_close(ddp_weights({}, {.device_ids = {here}, .engine = engine}, true), expected));
  });
  REQUIRE(are_close(ddp_weights({}, {.bucket_cap_mb = 0.0005, .gradient_as_bucket_view = true}, false), expected));
  const auto compress = [](auto& model) { model->register_comm_hook(Group(), ddp::bf16_compress_hook); };
  REQUIRE(are_equal_in_16_bits(ddp_weights(compress, {}, false), expected));
  REQUIRE(are_close(train_on_rank(0, default_group(), here, {}), expected));
  REQUIRE(are_close(train_on_rank(0, default_group(), here, {.options = {.reshard_after_forward = false}}), expected));
  const auto mesh = init_device_mesh("cuda", {1, 1}, {"replicas", "shards"});
  REQUIRE(are_close(train_on_rank(0, default_group(), here, {.options = {.mesh = mesh}}), expected));
  destroy_process_group();
}

TEST_F(NcclTraining, StrategiesEndWhereALoopDoes) {
  test::run_workers("nccl_strategies", {.world_size = 1}).expect_success();
}

COHORT_WORKER(nccl_trainer) {
  install_requested_devices();
  const auto fit = [](const std::string& strategy, const std::string& precision, std::optional<c10::Device> device) {
    SmallTask task(/*drop=*/0.0);
    train::TrainerOptions options{.strategy = {.kind = strategy, .device = device}, .gradient_clip_norm = 0.5};
    options.precision = precision;
    options.max_epochs = 2;
    options.seed = 4;
    options.strategy.fsdp.one_memory = false;
    return fit_on(task, options);
  };
  const auto expected = fit("ddp", "32", at::kCPU);  // which takes a backend for the CPU
  destroy_process_group();
  for (const char* const strategy : {"ddp", "fsdp", "single"}) {
    REQUIRE_EQUAL(difference(fit(strategy, "32", {}), expected), "");
    for (const char* const precision : {"16-mixed", "bf16-mixed"}) {
      const auto got = fit(strategy, precision, {});
      REQUIRE(got.losses.size() == expected.losses.size());
      for (size_t i = 0; i < got.losses.size(); ++i) REQUIRE(std::abs(got.losses[i] - expected.losses[i]) < 0.05);
    }
  }
  REQUIRE_EQUAL(get_backend_config(), "cuda:nccl");
  destroy_process_group();
}

TEST_F(NcclTraining, TrainersAreAsOnTheCpu) { test::run_workers("nccl_trainer", {.world_size = 1}).expect_success(); }

COHORT_WORKER(nccl_checkpoints) {
  install_requested_devices();
  init_process_group();
  const auto here = cohort::current_device();
  const std::string folder = test::worker_arguments()[0];
  checkpoint::StateDict tensors;
  tensors.insert("a", at::arange(12, here).view({3, 4}).to(at::kHalf));
  tensors.insert("b", at::randn({100}, here).to(at::kBFloat16));
  checkpoint::save_file(tensors, folder + "/t.safetensors");
  checkpoint::save(tensors, folder + "/t.pt");
  const auto from_safetensors = checkpoint::load_file(folder + "/t.safetensors", {.device = here});
  const auto from_pt = checkpoint::load_tensors(folder + "/t.pt");
  for (const auto& item : tensors) {
    REQUIRE(from_safetensors[item.key()].device() == here && at::equal(from_safetensors[item.key()], item.value()));
    REQUIRE(from_pt[item.key()].device() == here && at::equal(from_pt[item.key()], item.value()));
  }
  auto model = blocks_on(here, gathered_in(default_group())), other = blocks_on(here, gathered_in(default_group()));
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01)),
      again(other->parameters(), torch::optim::AdamWOptions(0.01));
  train_steps(model, 0, {});
  checkpoint::save_sharded(checkpoint::get_model_state_dict(*model), folder + "/sharded");
  auto state = checkpoint::get_model_state_dict(*other);
  checkpoint::load_sharded(state, folder + "/sharded");
  REQUIRE(are_close(whole_on_cpu(other), whole_on_cpu(model), 0, 0));
  destroy_process_group();
}

TEST_F(NcclTraining, CheckpointsOfTensorsThere) {
  const test::TemporaryFolder folder;
  test::run_workers("nccl_checkpoints", {.world_size = 1, .arguments = {folder.path()}}).expect_success();
}

COHORT_WORKER(nccl_dtensors) {
  install_requested_devices();
  init_process_group();
  const auto here = cohort::current_device();
  const auto mesh = init_device_mesh("cuda", {1}, {"tp"});
  const auto a = at::randn({4, 6}, here), b = at::randn({6, 5}, here);
  for (const auto& placement : {Placements{Shard(0)}, Placements{Shard(1)}, Placements{Replicate()}}) {
    const at::Tensor x = DTensor(distribute_tensor(a, mesh, placement));
    const at::Tensor y = DTensor(distribute_tensor(b, mesh, {Replicate()}));
    const DTensor product(at::matmul(x, y));
    REQUIRE(product.to_local().device() == here);
    REQUIRE(at::allclose(product.full_tensor(), at::matmul(a, b), 1e-5, 1e-6));
    REQUIRE(at::equal(DTensor(x).redistribute({Replicate()}).to_local(), a));
  }
  destroy_process_group();
}

TEST_F(NcclTraining, DTensorsThere) { test::run_workers("nccl_dtensors", {.world_size = 1}).expect_success(); }

}  // namespace
}  // namespace cohort::sim
