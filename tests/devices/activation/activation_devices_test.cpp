// Checkpoints and offload on a device: its generator, its autograd thread, copies to the CPU and back.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "cohort/parallel/activation/activation_checkpoint.h"
#include "tests/support/sim_device/device_test.h"
#include "tests/support/sim_device/sim_device.h"

namespace cohort::sim {
namespace {

using ActivationDevices = DeviceTest;

enum class Way { kPlain, kCheckpoint, kReentrant, kOtherNumbers, kOffload, kPinned };

// Output and gradients of one pass with dropout.
std::vector<at::Tensor> activation_pass(Way way) {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Dropout(0.5),
                            torch::nn::Linear(16, 4));
  net->to(device(0));
  const auto x = torch::randn({4, 8}).to(device(0)).requires_grad_();
  torch::manual_seed(5);
  const auto forward = [&]() -> at::Tensor {
    if (way == Way::kPlain) return net->forward(x);
    if (way == Way::kOffload || way == Way::kPinned) {
      const SaveOnCpu offload({.pin_memory = way == Way::kPinned});
      return net->forward(x);
    }
    const CheckpointOptions options{.use_reentrant = way == Way::kReentrant,
                                    .preserve_rng_state = way != Way::kOtherNumbers};
    return activation::checkpoint(
        options, [net](const at::Tensor& input) mutable { return net->forward(input); }, x);
  };
  const auto y = forward();
  at::rand({2}, y.options());
  y.square().sum().backward();
  std::vector<at::Tensor> result{y.detach().cpu(), x.grad().cpu()};
  for (const auto& parameter : net->parameters()) result.push_back(parameter.grad().cpu());
  return result;
}

bool have_equal_bits(const std::vector<at::Tensor>& first, const std::vector<at::Tensor>& second) {
  bool result = first.size() == second.size();
  for (size_t i = 0; result && i < first.size(); ++i) result = at::equal(first[i], second[i]);
  return result;
}

TEST_F(ActivationDevices, CheckpointsDrawTheDevicesNumbersAgain) {
  const auto expected = activation_pass(Way::kPlain);
  EXPECT_TRUE(have_equal_bits(activation_pass(Way::kCheckpoint), expected));
  EXPECT_TRUE(have_equal_bits(activation_pass(Way::kReentrant), expected));
  EXPECT_FALSE(have_equal_bits(activation_pass(Way::kOtherNumbers), expected));
}

TEST_F(ActivationDevices, OffloadBringsEverythingBack) {
  const auto expected = activation_pass(Way::kPlain);
  EXPECT_TRUE(have_equal_bits(activation_pass(Way::kOffload), expected));
  EXPECT_TRUE(have_equal_bits(activation_pass(Way::kPinned), expected));
}

TEST_F(ActivationDevices, OffloadedTensorsLeaveTheDevice) {
  const auto x = torch::rand({16}).to(device(0)).requires_grad_();
  c10::weak_intrusive_ptr<c10::StorageImpl> result(c10::intrusive_ptr<c10::StorageImpl>{});
  at::Tensor loss;
  {
    const SaveOnCpu offload;
    const auto y = x.exp();
    result = y.storage().getWeakStorageImpl();
    loss = y.sum();
  }
  EXPECT_TRUE(result.expired());
  loss.backward();
  EXPECT_TRUE(at::equal(x.grad().cpu(), x.detach().exp().cpu()));
}

// Backward's thread of the device has the hooks that its caller had.
TEST_F(ActivationDevices, GradientsOfGradientsInACheckpoint) {
  const auto function = [](const at::Tensor& input) {
    const auto inner = torch::autograd::grad({input.exp().sin().sum()}, {input}, {}, true, /*create_graph=*/true);
    return inner.front().sin();
  };
  const auto x = torch::rand({8}).to(device(0)).requires_grad_();
  for (const bool early_stop : {true, false}) {
    const auto actual =
        torch::autograd::grad({activation::checkpoint({.early_stop = early_stop}, function, x).sum()}, {x})
            .front()
            .cpu();
    EXPECT_TRUE(at::equal(actual, torch::autograd::grad({function(x).sum()}, {x}).front().cpu()));
  }
}

}  // namespace
}  // namespace cohort::sim
