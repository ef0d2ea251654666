// DTensors on devices: what one process on the CPU computes, and where parts are.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include "cohort/dtensor/api/distribute_module.h"
#include "cohort/dtensor/api/factories.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/optim/grad_scaler.h"
#include "tests/devices/in_stream.h"
#include "tests/support/require.h"
#include "tests/support/sim_device/device_test.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

using DTensorDevices = DeviceTest;

DeviceMesh line_of(const Group& group) {
  return DeviceMesh::from_group(std::vector<Group>{group}, c10::DeviceTypeName(type(), /*lower_case=*/true), {"tp"},
                                at::arange(group->getSize()));
}

// Of numbers of its own: ranks are threads here, which draw from one default generator.
at::Tensor net_values(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kFloat));
}

torch::nn::Sequential make_net() {
  torch::nn::Sequential net(torch::nn::Embedding(7, 6), torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})),
                            torch::nn::Linear(6, 8), torch::nn::GELU(), torch::nn::Linear(8, 5));
  uint64_t seed = 2;
  for (at::Tensor& parameter : net->parameters()) parameter.detach().copy_(net_values(parameter.sizes(), seed++) * 0.4);
  return net;
}

void shard_net(const std::string& name, torch::nn::Module& module, const DeviceMesh& mesh) {
  const Placements rows{Shard(0)};
  if (name == "0") dtensor::distribute_parameters(module, mesh, {{"weight", rows}}, std::nullopt);
  if (name == "2") dtensor::distribute_parameters(module, mesh, {{"weight", rows}, {"bias", rows}}, std::nullopt);
  if (name == "4") dtensor::distribute_parameters(module, mesh, {{"weight", {Shard(1)}}}, std::nullopt);
}

// Parameters after a few steps, on the CPU.
std::vector<at::Tensor> trained(torch::nn::Sequential& net, const c10::Device& device) {
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2).eps(1e-3));
  amp::GradScaler scaler({.device = device.type(), .init_scale = 8});
  const auto words = at::tensor({0, 6, 3, 2}, at::kLong).to(device);
  const auto labels = at::tensor({4, 1, -100, 0}, at::kLong).to(device);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    scaler.scale(at::cross_entropy_loss(net->forward(words), labels)).backward();
    scaler.unscale_(optimizer);
    nn::utils::clip_grad_norm_(net->parameters(), 0.1);
    scaler.step(optimizer);
    scaler.update();
  }
  std::vector<at::Tensor> wholes;
  for (const auto& parameter : net->parameters()) {
    const auto values = parameter.detach();
    wholes.push_back((is_dtensor(values) ? DTensor(values).full_tensor() : values).cpu());
  }
  return wholes;
}

void require_training_as_on_the_cpu(const Group& group, const c10::Device& device) {
  auto alone = make_net(), together = make_net();
  const auto expected = trained(alone, at::kCPU);
  together->to(device);
  distribute_module(*together, line_of(group), shard_net, std::nullopt);
  const auto ours = trained(together, device);
  for (size_t i = 0; i < ours.size(); ++i) REQUIRE(at::allclose(ours[i], expected[i], 1e-4, 1e-5));
  for (const auto& parameter : together->parameters()) {
    REQUIRE(parameter.device() == device && DTensor(parameter.detach()).to_local().device() == device);
    REQUIRE(DTensor(parameter.grad()).to_local().device() == device);
  }
}

TEST_F(DTensorDevices, ANetIsTrainedAsOnTheCpu) {
  run_ranks_with_devices(2, [](int /*rank*/, const Group& group, const RankDevices& devices) {
    const c10::DeviceGuard guard(devices.first);
    require_training_as_on_the_cpu(group, devices.first);
    const InStream side(new_stream(devices.first.index()));
    require_training_as_on_the_cpu(group, devices.first);
  });
}

TEST_F(DTensorDevices, ClassesAreSharded) {
  run_ranks_with_devices(2, [](int /*rank*/, const Group& group, const RankDevices& devices) {
    const c10::DeviceGuard guard(devices.first);
    const auto whole = net_values({4, 5}, 5).requires_grad_(), labels = at::tensor({4, 1, -100, 0}, at::kLong);
    const auto expected = at::cross_entropy_loss(whole, labels);
    expected.backward();
    const DTensor parts = distribute_tensor(whole.detach().to(devices.first), line_of(group), {Shard(1)}, std::nullopt);
    const at::Tensor scores = parts.detach().requires_grad_();
    const auto loss = at::cross_entropy_loss(scores, labels.to(devices.first));
    loss.backward();
    REQUIRE(DTensor(loss.detach()).full_tensor().cpu().allclose(expected.detach()));
    REQUIRE(DTensor(scores.grad()).placements() == Placements{Shard(1)});
    REQUIRE(DTensor(scores.grad()).full_tensor().cpu().allclose(whole.grad(), 1e-4, 1e-6));
  });
}

TEST_F(DTensorDevices, PartsAreMadeOnTheCurrentDeviceAndMoved) {
  run_ranks_with_devices(2, [](int rank, const Group& group, const RankDevices& devices) {
    const c10::DeviceGuard guard(devices.second);
    const auto mesh = line_of(group);
    const DTensor ones = dtensor::ones({3, 4}, mesh, {Shard(0)}, at::kFloat);
    REQUIRE(ones.device() == devices.second && ones.to_local().size(0) == 2 - rank);
    const auto part = at::full({2, 4}, rank + 1.0f).to(devices.second);
    const auto sums = DTensor::from_local(part, mesh, {Partial()});
    REQUIRE(sums.full_tensor().cpu().equal(at::full({2, 4}, 3.0f)));
    REQUIRE(DTensor(sums.exp()).full_tensor().cpu().allclose(at::full({2, 4}, 3.0f).exp()));
    const auto rows = DTensor::from_local(part, mesh, {Shard(0)});
    REQUIRE(rows.redistribute({Shard(1)}).full_tensor().cpu().select(1, 0).equal(at::tensor({1.f, 1.f, 2.f, 2.f})));
  });
}

}  // namespace
}  // namespace cohort::sim
