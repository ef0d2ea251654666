// What LibTorch computes on simulated devices has the CPU's bits.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/pimpl.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <functional>

#include "tests/support/sim_device/device_test.h"

namespace cohort::sim {
namespace {

using SimNumbers = SimulatedDeviceTest;
using torch::nn::Sequential;

std::vector<at::Tensor> on_cpu(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors) result.push_back(tensor.detach().cpu());
  return result;
}

void expect_equal(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(actual[i].equal(expected[i])) << "tensor " << i;
}

// Output, gradients and buffers of one pass.
std::vector<at::Tensor> pass(const std::function<Sequential()>& make, const at::Tensor& input, c10::Device where) {
  torch::manual_seed(3);
  auto net = make();
  net->to(where);
  const auto y = net->forward(input.to(where));
  (y * y).sum().backward();
  std::vector<at::Tensor> result{y};
  for (const auto& parameter : net->parameters()) result.push_back(parameter.grad());
  for (const auto& buffer : net->buffers()) result.push_back(buffer);
  return on_cpu(result);
}

void expect_pass_of_cpu(const std::function<Sequential()>& make, const at::Tensor& input) {
  expect_equal(pass(make, input, device(1)), pass(make, input, at::kCPU));
}

TEST_F(SimNumbers, Convolutions) {
  expect_pass_of_cpu(
      [] {
        return Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)), torch::nn::BatchNorm2d(8),
                          torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                          torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).groups(2)),
                          torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten(), torch::nn::Linear(8, 3));
      },
      at::randn({2, 3, 16, 16}));
}

TEST_F(SimNumbers, TransformerLayer) {
  expect_pass_of_cpu(
      [] {
        return Sequential(
            torch::nn::TransformerEncoderLayer(torch::nn::TransformerEncoderLayerOptions(16, 4).dropout(0.0)));
      },
      at::randn({5, 2, 16}));
}

TEST_F(SimNumbers, EmbeddingAndActivations) {
  expect_pass_of_cpu(
      [] {
        return Sequential(torch::nn::Embedding(10, 6), torch::nn::Linear(6, 4), torch::nn::SiLU(), torch::nn::GELU(),
                          torch::nn::GroupNorm(1, 5));
      },
      at::randint(10, {4, 5}, at::kLong));
}

struct TwoPartsImpl : torch::nn::Module {
  TwoPartsImpl() {
    front = register_module("front", Sequential(torch::nn::Linear(20, 32), torch::nn::ReLU(),
                                                torch::nn::LayerNorm(torch::nn::LayerNormOptions({32}))));
    back = register_module("back", Sequential(torch::nn::Linear(32, 32), torch::nn::GELU(), torch::nn::BatchNorm1d(32),
                                              torch::nn::Linear(32, 5)));
  }
  at::Tensor forward(const at::Tensor& x, c10::Device second) { return back->forward(front->forward(x).to(second)); }
  Sequential front, back;
};
TORCH_MODULE(TwoParts);

template <class Optimizer, class Options>
std::vector<at::Tensor> train(c10::Device first, c10::Device second, const Options& options) {
  torch::manual_seed(1);
  TwoParts net;
  net->front->to(first);
  net->back->to(second);
  Optimizer optimizer(net->parameters(), options);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  for (int step = 0; step < 5; ++step) {
    const auto x = at::randn({16, 20}, generator);
    const auto labels = at::randint(5, {16}, generator, at::kLong);
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(net->forward(x.to(first), second), labels.to(second)).backward();
    torch::nn::utils::clip_grad_norm_(net->front->parameters(), 1.0);
    optimizer.step();
  }
  auto result = net->parameters();
  for (const auto& buffer : net->buffers()) result.push_back(buffer);
  return on_cpu(result);
}

TEST_F(SimNumbers, TrainingOnTwoDevices) {
  const auto sgd = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01);
  expect_equal(train<torch::optim::SGD>(device(0), device(1), sgd), train<torch::optim::SGD>(at::kCPU, at::kCPU, sgd));
  const torch::optim::AdamWOptions adamw(0.01);
  expect_equal(train<torch::optim::AdamW>(device(0), device(1), adamw),
               train<torch::optim::AdamW>(at::kCPU, at::kCPU, adamw));
}

TEST_F(SimNumbers, SizesThatDependOnTheData) {
  const auto x = at::arange(10, device(1)).to(at::kFloat);
  EXPECT_EQ(x.masked_select(x > 6).sum().item<float>(), 24);
  EXPECT_EQ((x > 6).nonzero().numel(), 3);
  EXPECT_EQ(x.index({at::tensor({2, 3})}).sum().item<float>(), 5);
  EXPECT_EQ(std::get<0>(at::_unique2(x)).numel(), 10);
  EXPECT_EQ(std::get<0>(x.sort(0, /*descending=*/true))[0].item<float>(), 9);
  EXPECT_TRUE(synchronous_operators().contains("aten::nonzero"));
  EXPECT_FALSE(synchronous_operators().contains("aten::add.Tensor"));
}

TEST_F(SimNumbers, StoragesGrowAndShrink) {
  auto x = at::arange(10, device(1)).to(at::kFloat);
  auto out = at::empty({0}, device(1));
  at::add_out(out, x, x);
  EXPECT_TRUE(out.cpu().equal(2 * at::arange(10)));
  x.resize_({20});
  EXPECT_TRUE(x.narrow(0, 0, 10).cpu().equal(at::arange(10).to(at::kFloat)));
  auto* const storage = x.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(0));
  storage->set_nbytes(0);
  EXPECT_EQ(x.storage().nbytes(), 0);
}

TEST_F(SimNumbers, RandomNumbersFollowSeedAndDevice) {
  const auto draw = [] {
    torch::manual_seed(5);
    return std::array{at::randn({100}, device(0)).cpu(), at::randn({100}, device(1)).cpu()};
  };
  const auto first = draw(), second = draw();
  EXPECT_TRUE(first[0].equal(second[0]));
  EXPECT_TRUE(first[1].equal(second[1]));
  EXPECT_FALSE(first[0].equal(at::randn({100}, device(0)).cpu()));
  const auto dropped = at::dropout(at::ones({1000}, device(0)), 0.5, /*train=*/true);
  EXPECT_NEAR(dropped.mean().item<float>(), 1, 0.2);
  auto generator = at::globalContext().defaultGenerator(device(1));
  const auto state = generator.get_state();
  const auto x = at::rand({4}, device(1)).cpu();
  generator.set_state(state);
  EXPECT_TRUE(x.equal(at::rand({4}, device(1)).cpu()));
}

TEST_F(SimNumbers, Autocast) {
  const auto weight = at::randn({4, 4}, device(0)).requires_grad_(true);
  at::autocast::set_autocast_enabled(type(), true);
  at::autocast::set_autocast_dtype(type(), at::kBFloat16);
  const auto y = at::linear(at::randn({2, 4}, device(0)), weight);
  const auto z = at::softmax(y, 1);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(type(), false);
  z.sum().backward();
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(z.scalar_type(), at::kFloat);
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace cohort::sim
