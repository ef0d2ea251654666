// fully_shard on devices: what one process on the CPU computes, and where parameters, gradients and optimizer states are.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/device.h"
#include "cohort/mesh/device_mesh.h"
#include "tests/devices/fsdp/device_blocks.h"
#include "tests/support/rank_processes.h"
#include "tests/support/sim_device/stream_backend.h"

namespace cohort::sim {
namespace {

using FsdpDevices = DeviceTest;

std::string mesh_device_type() { return c10::DeviceTypeName(type(), /*lower_case=*/true); }

TEST_F(FsdpDevices, OneToFourRanks) {
  for (const int world_size : {1, 2, 3, 4}) expect_as_one_process(world_size, {});
}

TEST_F(FsdpDevices, ParametersLetGoOrKeptAfterForward) {
  expect_as_one_process(2, {.options = {.reshard_after_forward = true}});
  expect_as_one_process(2, {.options = {.reshard_after_forward = false}});
  expect_as_one_process(2, {.set_up = [](BlockModel& model) { model->set_reshard_after_backward(false); },
                            .begin_step =
                                [](BlockModel& model) {
                                  model->reshard();
                                  for (auto& block : model->module().blocks) block->reshard();
                                }});
}

void fetch_early(BlockModel& model) {
  auto& blocks = model->module().blocks;
  model->set_modules_to_forward_prefetch({blocks[0].get(), blocks[1].get()});
  blocks[0]->set_modules_to_forward_prefetch({blocks[2].get()});
  blocks[2]->set_modules_to_backward_prefetch({blocks[1].get(), blocks[0].get()});
}

TEST_F(FsdpDevices, Prefetch) {
  expect_as_one_process(3, {.options = {.reshard_after_forward = true}, .set_up = fetch_early});
}

TEST_F(FsdpDevices, AccumulationWithAndWithoutReductions) {
  expect_as_one_process(2, {.num_passes = 3});
  expect_as_one_process(2, {.num_passes = 3, .syncs_last = true});
}

TEST_F(FsdpDevices, Clipping) { expect_as_one_process(3, {.clips = true}); }

TEST_F(FsdpDevices, MixedPrecision) {
  for (const std::optional<c10::ScalarType> reduce_dtype :
       {std::optional(at::kFloat), std::optional<at::ScalarType>()}) {
    fsdp::Options options;
    options.mp_policy = {.param_dtype = at::kBFloat16, .reduce_dtype = reduce_dtype};
    expect_as_on_cpu(2, {.options = options});
    expect_as_on_cpu(2, {.options = options, .num_passes = 2, .syncs_last = true});
  }
}

TEST_F(FsdpDevices, ShardsOnTheCpu) {
  for (const bool pin_memory : {true, false}) {
    const BlockTraining way{.options = {.offload_policy = fsdp::CPUOffloadPolicy(pin_memory)}, .num_passes = 2};
    expect_as_one_process(2, way);
    run_ranks_with_devices(2, [&](int rank, const Group& group, const RankDevices& devices) {
      auto model = blocks_on(devices.first, gathered_in(group, way.options));
      torch::optim::AdamW optimizer(model->parameters());
      const auto output = model(fsdp::test::batch(rank, 0));
      REQUIRE(output.device() == devices.first);
      output.sum().backward();
      optimizer.step();
      for (const auto& shard : model->parameters()) {
        REQUIRE(shard.is_cpu() && shard.grad().is_cpu());
        REQUIRE(shard.storage().nbytes() == 0 || shard.is_pinned() == pin_memory);
        const auto& state =
            static_cast<torch::optim::AdamWParamState&>(*optimizer.state().at(shard.unsafeGetTensorImpl()));
        REQUIRE(state.exp_avg().is_cpu());
      }
    });
  }
}

// As in PyTorch, to the current device of the mesh's type.
TEST_F(FsdpDevices, ParametersOfTheCpuAreMovedToTheMeshsDevice) {
  const auto expected = train_in_one_process(2, {});
  run_ranks_with_devices(2, [&](int rank, const Group& group, const RankDevices& devices) {
    const c10::DeviceGuard guard(devices.second);
    const auto line = DeviceMesh::from_group(std::vector<Group>{group}, mesh_device_type(), {"dp"}, at::arange(2));
    auto model = blocks_on(at::kCPU, gathered_in(group, {.mesh = line}));
    train_steps(model, rank, {});
    for (const auto& shard : model->parameters()) REQUIRE(shard.device() == devices.second);
    for (const auto& whole : model->module().parameters()) REQUIRE(whole.device() == devices.second);
    REQUIRE(are_close(whole_on_cpu(model), expected));
  });
}

// Memory comes from the group's device, whichever is current.
TEST_F(FsdpDevices, AnotherDeviceIsCurrent) {
  const auto expected = train_in_one_process(2, {});
  run_ranks_with_devices(2, [&](int rank, const Group& group, const RankDevices& devices) {
    const c10::DeviceGuard guard(devices.first);
    REQUIRE(are_close(train_on_rank(rank, group, devices.second, {}), expected));
  });
}

struct OnMeta : torch::nn::Module {
  OnMeta() {
    weight = register_parameter("weight", at::empty({5, 3}, at::kMeta));
    bias = register_parameter("bias", at::empty({5}, at::kMeta));
  }
  at::Tensor forward(at::Tensor x) { return at::linear(x, weight, bias); }
  at::Tensor weight, bias;
};

TEST_F(FsdpDevices, MetaModulesAreWrittenOnTheDevice) {
  run_ranks_with_devices(2, [](int rank, const Group& group, const RankDevices& devices) {
    const c10::DeviceGuard guard(devices.first);
    const auto line = DeviceMesh::from_group(std::vector<Group>{group}, mesh_device_type(), {"dp"}, at::arange(2));
    auto model = fully_shard(std::make_shared<OnMeta>(), gathered_in(group, {.mesh = line}));
    model->write([](const std::string& name, const at::Tensor& full) { full.fill_(name == "weight" ? 2 : 1); });
    model(at::ones({4, 3})).sum().backward();
    const auto shards = model->named_parameters();
    REQUIRE(shards["weight"].device() == devices.first);
    REQUIRE(shards["weight"].cpu().equal(at::full({rank == 0 ? 3 : 2, 3}, 2.0f)));
    REQUIRE(shards["bias"].cpu().equal(at::full({rank == 0 ? 3 : 2}, 1.0f)));
    REQUIRE(shards["weight"].grad().cpu().equal(at::full({rank == 0 ? 3 : 2, 3}, 4.0f)));
  });
}

TEST_F(FsdpDevices, ParametersOnTwoDevicesMessage) {
  COHORT_SKIP_WITH_FEWER_DEVICES_THAN(2);
  run_ranks_with_devices(1, [](int, const Group& group, const RankDevices& devices) {
    torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
    net[0]->to(devices.first);
    net[1]->to(devices.second);
    REQUIRE_EQUAL(test::error_of([&] { fully_shard(net, gathered_in(group)); }),
                  "[cohort] fully_shard needs all parameters on one device, but '1.weight' is on " +
                      devices.second.str() + ", not on " + devices.first.str());
  });
}

// Ranks that are processes, because they make groups of their own: replicas, and parameters shared by two after forward.
COHORT_WORKER(shards_over_four_devices) {
  install_requested_devices();
  register_stream_backend();
  const auto expected = train_in_one_process(4, {.num_passes = 2});
  const auto where = cohort::current_device();
  init_process_group({.backend = "cpu:gloo," + mesh_device_type() + ":stream", .device_id = where});
  const auto check = [&](const fsdp::Options& options, BlockTraining way) {
    way.options = options;
    way.num_passes = 2;
    REQUIRE(are_close(train_on_rank(get_rank(), {}, where, way), expected));
  };
  check({.reshard_after_forward = 2}, {});
  const auto mesh = init_device_mesh(mesh_device_type(), {2, 2}, {"replicas", "shards"});
  check({.mesh = mesh}, {});
  check({.mesh = mesh}, {.syncs_last = true});
  check({}, {.set_up = [](BlockModel& model) { model->set_separate_reduce_scatter_group(); }});
  destroy_process_group();
}

TEST_F(FsdpDevices, ReplicasAndPartsInFourProcesses) {
  test::run_workers("shards_over_four_devices", {.world_size = 4}).expect_success();
}

}  // namespace
}  // namespace cohort::sim
