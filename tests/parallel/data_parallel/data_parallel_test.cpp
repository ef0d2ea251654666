// Several replicas on the CPU: as one device on the same parts of the batch, bit for bit.
#include "cohort/parallel/data_parallel/data_parallel.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <atomic>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "tests/parallel/data_parallel/nets.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using nn::parallel::Devices;
using test::error_of;
using test::loss_of;
using test::ManySided;
using test::ManySidedImpl;

const Devices kTwo{at::kCPU, at::kCPU};
const Devices kThree{at::kCPU, at::kCPU, at::kCPU};

ManySided clone_of(const ManySided& net) { return ManySided(std::dynamic_pointer_cast<ManySidedImpl>(net->clone())); }

// `sums`: undefined where a parameter shall have no gradient.
void expect_gradients(const ManySided& net, const std::vector<at::Tensor>& sums) {
  const auto parameters = net->named_parameters();
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto& grad = parameters[i].value().grad();
    ASSERT_EQ(grad.defined(), sums[i].defined()) << parameters[i].key();
    EXPECT_TRUE(!grad.defined() || at::equal(grad, sums[i])) << parameters[i].key();
  }
}

TEST(DataParallel, EqualsOneDeviceOnTheSameParts) {
  ManySided net;
  auto alone = clone_of(net);
  const auto x = at::randn({8, 6});
  DataParallel parallel(net, kThree);
  const auto output = parallel(x);
  const auto sums = test::gradients_part_by_part(alone, x, 3);
  loss_of(output).backward();
  expect_gradients(net, sums);
  auto reference = clone_of(net);
  EXPECT_EQ(output.size(0), 8);
  // Each part has a mean of its own in BatchNorm, and only the first replica's stays.
  reference->norm->running_mean.zero_();
  reference->norm->running_var.fill_(1);
  reference->forward(x.chunk(3)[0]);
  EXPECT_TRUE(at::equal(net->norm->running_mean, reference->norm->running_mean));
  EXPECT_EQ(net->passes.item<float>(), 1.F);
  EXPECT_EQ(net->norm->num_batches_tracked.item<int64_t>(), 1);
}

TEST(DataParallel, TrainsAsOneDevice) {
  torch::manual_seed(4);
  ManySided net;
  net->norm->eval();  // whose numbers would depend on the parts
  auto alone = clone_of(net);
  alone->norm->eval();
  const auto before = net->scale.detach().clone();
  DataParallel parallel(net, kTwo);
  torch::optim::SGD of_net(net->parameters(), 0.002);
  torch::optim::SGD of_alone(alone->parameters(), 0.002);
  for (int step = 0; step < 5; ++step) {
    const auto x = at::randn({6, 6});
    of_net.zero_grad();
    of_alone.zero_grad();
    loss_of(parallel(x)).backward();
    loss_of(alone->forward(x)).backward();
    of_net.step();
    of_alone.step();
  }
  for (const auto& parameter : net->named_parameters()) {
    EXPECT_TRUE(at::allclose(parameter.value(), alone->named_parameters()[parameter.key()], 1e-4, 1e-5))
        << parameter.key();
  }
  EXPECT_FALSE(at::allclose(net->scale, before, 0, 1e-3));
}

// LibTorch's clone() of such a Sequential gives its modules numbers.
TEST(DataParallel, ASequentialWithNames) {
  torch::nn::Sequential net(
      {{"in", torch::nn::AnyModule(torch::nn::Linear(6, 4))}, {"out", torch::nn::AnyModule(torch::nn::Linear(4, 3))}});
  DataParallel<torch::nn::SequentialImpl, at::Tensor(at::Tensor)> parallel(net.ptr(), kTwo);
  const auto x = at::randn({6, 6});
  EXPECT_TRUE(at::allclose(parallel(x), net->forward(x), 1e-4, 1e-5));
}

TEST(DataParallel, ReplicasRunInThreadsOfTheirOwn) {
  struct WhereImpl : torch::nn::Cloneable<WhereImpl> {
    void reset() override {}
    at::Tensor forward(const at::Tensor& x) {
      const auto id = std::hash<std::thread::id>()(std::this_thread::get_id());
      return at::full({x.size(0)}, static_cast<int64_t>(id >> 1), at::kLong);
    }
  };
  DataParallel parallel(std::make_shared<WhereImpl>(), kThree);
  const auto first = parallel(at::ones({3}));
  EXPECT_EQ(std::get<0>(at::_unique(first)).numel(), 3);
  EXPECT_TRUE(at::equal(first, parallel(at::ones({3}))));
}

TEST(DataParallel, ABatchShorterThanTheListOfDevices) {
  ManySided net;
  net->eval();
  DataParallel parallel(net, kThree);
  const auto x = at::randn({2, 6});
  EXPECT_TRUE(at::allclose(parallel(x), net->forward(x), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(parallel(x.narrow(0, 0, 1)), net->forward(x.narrow(0, 0, 1)), 1e-4, 1e-5));
  EXPECT_EQ(parallel(x.narrow(0, 0, 0)).sizes(), (at::IntArrayRef{0, 3}));
}

TEST(DataParallel, SeveralForwardPassesBeforeOneBackward) {
  ManySided net;
  auto alone = clone_of(net);
  DataParallel parallel(net, kTwo);
  const auto x = at::randn({4, 6}), y = at::randn({4, 6});
  for (int step = 0; step < 2; ++step) {
    net->zero_grad();
    const auto first = parallel(x);
    {
      const torch::NoGradGuard no_grad;
      EXPECT_FALSE(parallel(y).requires_grad());
    }
    const auto second = parallel(y);
    (loss_of(first) + loss_of(second)).backward();
    const auto of_x = test::gradients_part_by_part(alone, x, 2), of_y = test::gradients_part_by_part(alone, y, 2);
    for (size_t i = 0; i < of_x.size(); ++i) {
      const auto& grad = net->parameters()[i].grad();
      EXPECT_TRUE(!of_x[i].defined() || at::allclose(grad, of_x[i] + of_y[i], 1e-4, 1e-5)) << i;
    }
  }
}

TEST(DataParallel, GradientsOfTheInputAndOfGradients) {
  ManySided net;
  net->eval();
  DataParallel parallel(net, kTwo);
  const auto penalty_of = [](auto& model, const at::Tensor& x) {
    const auto gradient = torch::autograd::grad({model->forward(x).pow(2).sum()}, {x}, {}, std::nullopt, true)[0];
    return gradient.pow(2).sum();
  };
  const auto x = at::randn({4, 6}).set_requires_grad(true);
  penalty_of(parallel, x).backward();
  const auto got = net->first->weight.grad().clone(), got_x = x.grad().clone();
  net->zero_grad();
  x.mutable_grad() = at::Tensor();
  penalty_of(net, x).backward();
  EXPECT_TRUE(at::allclose(got, net->first->weight.grad(), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(got_x, x.grad(), 1e-4, 1e-5));
}

struct NestedImpl : torch::nn::Cloneable<NestedImpl> {
  NestedImpl() { NestedImpl::reset(); }
  void reset() override { weight = register_parameter("weight", torch::ones({1})); }
  using Output = std::tuple<at::Tensor, std::map<std::string, std::vector<at::Tensor>>>;
  Output forward(const std::vector<at::Tensor>& xs, std::optional<at::Tensor> shift, double factor = 1) {
    const auto x = xs[0] * weight * factor + (shift ? *shift : at::zeros({1}));
    return {x, {{"both", {x, xs[1]}}}};
  }
  at::Tensor weight;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<at::Tensor>())}, {2, torch::nn::AnyValue(1.0)})
};
TORCH_MODULE(Nested);

TEST(DataParallel, AnyArgumentsAndResults) {
  DataParallel parallel(Nested(), kTwo);
  const auto x = at::arange(3, at::kFloat);
  const auto [sum, map] = parallel(std::vector{x, x * 10}, x + 1, 2);
  EXPECT_TRUE(at::equal(sum, x * 3 + 1));
  EXPECT_TRUE(at::equal(map.at("both")[1], x * 10));
  const auto [plain, same] = parallel(std::vector{x, x}, std::nullopt);
  EXPECT_TRUE(at::equal(plain, x));
}

struct ConstantImpl : torch::nn::Cloneable<ConstantImpl> {
  ConstantImpl() { ConstantImpl::reset(); }
  void reset() override { value = register_parameter("value", torch::ones({2})); }
  at::Tensor forward() { return value * 2; }
  at::Tensor value;
};
TORCH_MODULE(Constant);

TEST(DataParallel, WithoutArgumentsOneDeviceWorks) {
  Constant net;
  DataParallel parallel(net, kThree);
  const auto output = parallel();
  EXPECT_TRUE(at::equal(output, at::full({2}, 2.0)));
  output.sum().backward();
  EXPECT_TRUE(at::equal(net->value.grad(), at::full({2}, 2.0)));
}

struct SilentImpl : torch::nn::Cloneable<SilentImpl> {
  void reset() override {}
  void forward(const at::Tensor& x, const std::shared_ptr<std::atomic<int64_t>>& seen) { *seen += x.numel(); }
};

TEST(DataParallel, AForwardThatReturnsNothing) {
  DataParallel parallel(std::make_shared<SilentImpl>(), kTwo);
  const auto seen = std::make_shared<std::atomic<int64_t>>(0);
  parallel(at::ones({5}), seen);
  EXPECT_EQ(*seen, 5) << "what is no tensor is shared";
}

TEST(DataParallel, AlongAnotherDimension) {
  DataParallel parallel(torch::nn::Sequential(torch::nn::ReLU()), kTwo, std::nullopt, /*dim=*/1);
  const auto x = at::randn({2, 5});
  EXPECT_TRUE(at::equal(parallel(x), x.relu()));
  EXPECT_EQ(parallel->dim(), 1);
}

TEST(DataParallel, OneDeviceOrNoneCallTheModuleItself) {
  ManySided net;
  DataParallel one(net, {at::kCPU});
  one(at::ones({3, 6}));
  EXPECT_EQ(net->passes.item<float>(), 1.F);
  EXPECT_EQ(one->device_ids(), Devices{at::kCPU});
  if (!nn::parallel::all_devices().empty()) GTEST_SKIP() << "this machine has an accelerator";
  DataParallel none(net);
  EXPECT_TRUE(none->device_ids().empty());
  none(at::ones({3, 6}));
  EXPECT_EQ(net->passes.item<float>(), 2.F);
}

TEST(DataParallel, ReplicasAreKeptUntilForgotten) {
  struct OffsetImpl : torch::nn::Cloneable<OffsetImpl> {
    void reset() override {}
    at::Tensor forward(const at::Tensor& x) { return x + offset; }
    int offset = 1;
  };
  const auto net = std::make_shared<OffsetImpl>();
  DataParallel parallel(net, kTwo);
  EXPECT_TRUE(at::equal(parallel(at::zeros({2})), at::full({2}, 1.0)));
  net->offset = 5;
  EXPECT_TRUE(at::equal(parallel(at::zeros({2})), at::full({2}, 1.0)));
  parallel->forget_replicas();
  EXPECT_TRUE(at::equal(parallel(at::zeros({2})), at::full({2}, 5.0)));
}

TEST(DataParallel, StandsWhereTheModuleStood) {
  ManySided net;
  net->eval();
  const auto x = at::randn({4, 6});
  const auto expected = net->forward(x);
  using Wrapped = DataParallel<ManySidedImpl>;
  torch::nn::Sequential sequential(Wrapped(net, kTwo), torch::nn::Identity());
  EXPECT_TRUE(at::allclose(sequential->forward(x), expected, 1e-4, 1e-5));
  Wrapped by_reference(*net, kTwo), by_pointer(net.ptr(), kTwo);
  EXPECT_EQ(by_reference->named_parameters().keys(), net->named_parameters().keys());
  std::stringstream file;
  torch::save(by_pointer, file);
  ManySided copy;
  torch::load(copy, file);
  EXPECT_TRUE(at::equal(copy->scale, net->scale));
  by_pointer->train();
  EXPECT_TRUE(net->norm->is_training());
  std::ostringstream text;
  text << *by_pointer;
  EXPECT_EQ(text.str().rfind("DataParallel(", 0), 0);
}

TEST(DataParallel, TheFunctionForm) {
  ManySided net;
  net->eval();
  const auto x = at::randn({4, 6});
  const auto output = data_parallel(net, x, kTwo);
  EXPECT_TRUE(at::allclose(output, net->forward(x), 1e-4, 1e-5));
  output.sum().backward();
  EXPECT_TRUE(net->scale.grad().defined());
  const auto [sum, map] = data_parallel(Nested(), std::tuple{std::vector{x, x}, std::optional(x), 2.0}, kTwo);
  EXPECT_TRUE(at::equal(sum, x * 3));
  EXPECT_TRUE(at::equal(data_parallel(Constant(), std::tuple<>(), kThree), at::full({2}, 2.0)));
  if (nn::parallel::all_devices().empty()) {
    EXPECT_EQ(error_of([&] { data_parallel(net, x); }), "device type could not be determined");
  }
}

struct ElsewhereImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight = register_parameter("weight", at::ones({6}, at::kMeta));
};

TEST(DataParallel, ErrorsMessages) {
  ManySided net;
  DataParallel parallel(net, kTwo);
  const auto wrong = error_of([&] { parallel(at::ones({2, 5})); });
  EXPECT_NE(wrong.find("(in replica 0 on device cpu)"), std::string::npos) << wrong;
  parallel(at::ones({4, 6}));  // usable after an error
  DataParallel elsewhere(std::make_shared<ElsewhereImpl>(), kTwo);
  EXPECT_EQ(error_of([&] {
              elsewhere(at::ones({4, 6}));
            }),
            "module must have its parameters and buffers on device cpu (device_ids[0]) but found one of them on "
            "device: meta");
  ManySidedImpl on_the_stack;
  EXPECT_EQ(error_of([&] { DataParallel wrapped(on_the_stack, kTwo); }),
            "[cohort] DataParallel keeps the module that it wraps alive, but no std::shared_ptr owns this one; make it "
            "with std::make_shared, or with its holder, such as torch::nn::Linear");
}

TEST(DataParallel, ARecurrentNetWithItsListsOfWeights) {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2).batch_first(true));
  DataParallel parallel(lstm, kTwo);
  const auto x = at::randn({4, 5, 3});
  const auto [output, state] = parallel(x);
  const auto [expected, expected_state] = lstm->forward(x);
  EXPECT_TRUE(at::allclose(output, expected, 1e-5, 1e-6));
  EXPECT_EQ(std::get<0>(state).sizes(), (at::IntArrayRef{4, 2, 4})) << "states have their batch in dimension 1";
  output.sum().backward();
  const auto got = lstm->parameters()[0].grad().clone();
  lstm->zero_grad();
  expected.sum().backward();
  EXPECT_TRUE(at::allclose(got, lstm->parameters()[0].grad(), 1e-4, 1e-5));
}

}  // namespace
}  // namespace cohort
