// DistributedDataParallel on one and on two devices per rank: the bits of the CPU, with each engine.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "tests/devices/ddp/device_nets.h"
#include "tests/devices/ddp/device_training.h"

namespace cohort::sim {
namespace {

using DdpDevices = DeviceTest;

Weights train_two_device_net(int rank, const RankDevices& devices, const ddp::Options& options) {
  auto net = make_net<TwoDeviceNet>(rank);
  net->place(devices.first, devices.second);
  DistributedDataParallel model(net, options);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto data = data_of(rank);
  for (int step = 0; step < 4; ++step) {
    const auto x = at::randn({16, 20}, data);
    const auto labels = at::randint(5, {16}, data, at::kLong).to(devices.second);
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model(x), labels).backward();
    optimizer.step();
  }
  return weights_of(*net);
}

void expect_bits_of_cpu_with(const ddp::Options& options, bool on_one_device = false) {
  expect_bits_of_cpu([&](int rank, const Group& group, RankDevices devices) {
    auto own = options;
    own.process_group = group;
    own.bucket_cap_mb = 0.01;
    if (on_one_device) devices.second = devices.first;
    if (on_one_device && !devices.first.is_cpu()) own.device_ids = {devices.first};
    return train_two_device_net(rank, devices, own);
  });
}

TEST_F(DdpDevices, OneDevice) {
  for_each_engine([](ddp::Engine engine) { expect_bits_of_cpu_with({.engine = engine}, /*on_one_device=*/true); });
}

TEST_F(DdpDevices, TwoDevices) {
  for_each_engine([](ddp::Engine engine) { expect_bits_of_cpu_with({.engine = engine}); });
}

TEST_F(DdpDevices, TwoDevicesWithASearchForUnusedParameters) {
  for_each_engine(
      [](ddp::Engine engine) { expect_bits_of_cpu_with({.find_unused_parameters = true, .engine = engine}); });
}

TEST_F(DdpDevices, TwoDevicesWithAStaticGraph) {
  for_each_engine([](ddp::Engine engine) { expect_bits_of_cpu_with({.static_graph = true, .engine = engine}); });
}

// LibTorch's optimizers refuse the views that its own reducer makes.
TEST_F(DdpDevices, TwoDevicesWithGradientsAsBucketViews) {
  expect_bits_of_cpu_with({.gradient_as_bucket_view = true, .engine = ddp::Engine::kCohort});
}

}  // namespace
}  // namespace cohort::sim
