// DataParallel over two devices: the bits of two replicas on the CPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <optional>

#include "cohort/parallel/data_parallel/broadcast_reduce.h"
#include "cohort/parallel/data_parallel/data_parallel.h"
#include "tests/devices/ddp/device_training.h"
#include "tests/devices/in_stream.h"

namespace cohort::sim {
namespace {

using DataParallelDevices = DeviceTest;
using nn::parallel::Devices;

struct SplitNetImpl : torch::nn::Cloneable<SplitNetImpl> {
  SplitNetImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(20, 32));
    norm = register_module("norm", torch::nn::BatchNorm1d(32));
    second = register_module("second", torch::nn::Linear(32, 5));
  }
  at::Tensor forward(const at::Tensor& x) { return second(norm(first(x)).relu()); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(SplitNet);

struct SplitTraining {
  Devices devices;
  std::optional<c10::Device> output_device;
  bool has_two_passes = false;
  bool is_in_side_stream = false;
};

Weights train_split_net(const SplitTraining& how) {
  torch::manual_seed(3);
  SplitNet net;
  net->to(how.devices.front());
  DataParallel model(net, how.devices, how.output_device);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto data = data_of(0);
  const auto loss_of_batch = [&] {
    const auto x = at::randn({12, 20}, data);
    const auto labels = at::randint(5, {12}, data, at::kLong);
    const auto output = model(x.to(how.devices.front()));
    return torch::nn::functional::cross_entropy(output, labels.to(output.device()));
  };
  for (int step = 0; step < 4; ++step) {
    std::optional<InStream> in;
    // Another one in each step.
    if (how.is_in_side_stream) in.emplace(new_stream(how.devices.front().index()));
    optimizer.zero_grad();
    auto loss = loss_of_batch();
    if (how.has_two_passes) loss = loss + loss_of_batch();
    loss.backward();
    optimizer.step();
    if (how.is_in_side_stream) synchronize();
  }
  return weights_of(*net);
}

const Devices kOnTheCpu{at::kCPU, at::kCPU};

void expect_bits_of_replicas_on_the_cpu(SplitTraining how) {
  auto on_cpu = how;
  on_cpu.devices = kOnTheCpu;
  on_cpu.output_device.reset();
  on_cpu.is_in_side_stream = false;
  const auto expected = train_split_net(on_cpu);
  how.devices = {device(0), device(1)};
  EXPECT_TRUE(are_equal(train_split_net(how), expected));
}

TEST_F(DataParallelDevices, TwoDevices) { expect_bits_of_replicas_on_the_cpu({}); }

TEST_F(DataParallelDevices, OutputsOnTheOtherDevice) {
  expect_bits_of_replicas_on_the_cpu({.devices = {}, .output_device = device(1)});
}

TEST_F(DataParallelDevices, OutputsOnTheCpu) {
  expect_bits_of_replicas_on_the_cpu({.devices = {}, .output_device = at::kCPU});
}

TEST_F(DataParallelDevices, TwoPassesBeforeOneBackward) {
  expect_bits_of_replicas_on_the_cpu({.devices = {}, .output_device = {}, .has_two_passes = true});
}

TEST_F(DataParallelDevices, InStreamsOfTheProgram) {
  expect_bits_of_replicas_on_the_cpu(
      {.devices = {}, .output_device = {}, .has_two_passes = true, .is_in_side_stream = true});
}

TEST_F(DataParallelDevices, ManyTensorsCopiedAndAddedTogether) {
  std::vector<at::Tensor> given, tensors;
  for (int i = 1; i < 20; ++i) given.push_back(at::arange(100 * i, i % 2 ? at::kFloat : at::kDouble).to(device(0)));
  const InStream on_first(new_stream(0)), on_second(new_stream(1));
  for (const auto& tensor : given) tensors.push_back(tensor + 1);  // which may be late
  const auto copies = nn::parallel::broadcast_coalesced(tensors, {device(0), device(1)}, /*buffer_size=*/2000);
  for (const auto& copy : copies[1]) EXPECT_EQ(copy.device(), device(1));
  const auto sums = nn::parallel::reduce_add_coalesced(copies, device(0), /*buffer_size=*/3000);
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(sums[i].device(), device(0));
    EXPECT_TRUE(at::equal(sums[i].cpu(), 2 * tensors[i].cpu())) << i;
  }
}

TEST_F(DataParallelDevices, ModuleOnAnotherDeviceMessage) {
  SplitNet net;
  EXPECT_EQ(cohort::test::error_of([&] {
              (void)nn::parallel::replicate(net.ptr(), {device(0), device(1)});
            }),
            "module must have its parameters and buffers on device " + device(0).str() +
                " (device_ids[0]) but found one of them on device: cpu");
}

}  // namespace
}  // namespace cohort::sim
