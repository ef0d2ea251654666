// A strategy that only counts shows what each of them gets for nothing; DDP's own tests are in ../ddp/wrapper_test.cpp.
#include "cohort/parallel/module/wrapper_base.h"

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <sstream>

namespace cohort::parallel {
namespace {

template <class Net>
class CountedModule : public WrapperBase<Net> {
 public:
  explicit CountedModule(std::shared_ptr<Net> net) : WrapperBase<Net>("Counted", std::move(net)) {}
  template <class... Arguments>
  decltype(auto) call(Arguments&&... arguments) {
    ++num_calls;
    return this->module().forward(std::forward<Arguments>(arguments)...);
  }
  int num_calls = 0;
};

template <class Net, class Signature = ForwardSignature<Net>>
class CountedImpl final : public WrapperWithForward<CountedModule<Net>, Net, Signature> {
  using Base = WrapperWithForward<CountedModule<Net>, Net, Signature>;

 public:
  using Base::Base;
};

template <class Net, class Signature = ForwardSignature<Net>>
class Counted : public WrapperHolder<CountedImpl<Net, Signature>, Net> {
  using Impl = CountedImpl<Net, Signature>;

 public:
  explicit Counted(std::shared_ptr<Net> net) : WrapperHolder<Impl, Net>(std::make_shared<Impl>(std::move(net))) {}
  /*implicit*/ Counted(std::nullptr_t) : WrapperHolder<Impl, Net>(nullptr) {}
};

struct CountedNetImpl : torch::nn::Module {
  CountedNetImpl() {
    frozen = register_parameter("frozen", torch::ones({1}), /*requires_grad=*/false);
    seen = register_buffer("seen", torch::zeros({1}));
    layer = register_module("layer", torch::nn::Linear(2, 1));
  }
  at::Tensor forward(const at::Tensor& x, double scale = 2) { return layer(x) * frozen * scale; }

  at::Tensor frozen, seen;
  torch::nn::Linear layer{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(2.0)})
};
TORCH_MODULE(CountedNet);

TEST(WrapperBase, HoldsTheInnerModulesOwnEntriesUnderTheirNames) {
  const CountedNet net;
  const Counted<CountedNetImpl> wrapper(net.ptr());
  EXPECT_EQ(wrapper->named_parameters().keys(), net->named_parameters().keys());
  EXPECT_EQ(wrapper->named_buffers().keys(), net->named_buffers().keys());
  EXPECT_EQ(wrapper->named_children().keys(), net->named_children().keys());
  for (const auto& entry : wrapper->named_parameters()) {
    EXPECT_TRUE(entry.value().is_same(net->named_parameters()[entry.key()])) << entry.key();
  }
  EXPECT_FALSE(wrapper->named_parameters()["frozen"].requires_grad());
}

TEST(WrapperBase, EveryCallButTheInnerModulesPassesThroughTheStrategy) {
  Counted<CountedNetImpl> wrapper(std::make_shared<CountedNetImpl>());
  const auto x = torch::ones({1, 2});
  const auto expected = wrapper->module().forward(x);
  EXPECT_EQ(wrapper->num_calls, 0);
  EXPECT_TRUE(at::equal(wrapper(x), expected));
  EXPECT_TRUE(at::equal(wrapper->forward(x, 2), expected));
  torch::nn::Sequential sequential(wrapper);
  EXPECT_TRUE(at::equal(sequential->forward(x), expected));
  torch::nn::AnyModule any(wrapper);
  EXPECT_TRUE(at::equal(any.forward(x), expected));
  EXPECT_EQ(wrapper->num_calls, 4);
}

TEST(WrapperBase, StartsInTheInnerModulesModeAndPassesChangesOn) {
  CountedNet net;
  net->eval();
  Counted<CountedNetImpl> wrapper(net.ptr());
  EXPECT_FALSE(wrapper->is_training());
  wrapper->train();
  EXPECT_TRUE(net->is_training());
  EXPECT_TRUE(net->layer->is_training());
}

TEST(WrapperBase, LeavesTheModesOfTheLayersAsTheyAre) {
  CountedNet net;
  net->layer->eval();
  const Counted<CountedNetImpl> wrapper(net.ptr());
  EXPECT_TRUE(wrapper->is_training());
  EXPECT_FALSE(net->layer->is_training());
}

TEST(WrapperBase, SavesAsTheInnerModule) {
  Counted<CountedNetImpl> wrapper(std::make_shared<CountedNetImpl>());
  std::stringstream file;
  torch::save(wrapper, file);
  CountedNet copy;
  torch::load(copy, file);
  EXPECT_TRUE(at::equal(copy->layer->weight, wrapper->module().layer->weight));
}

TEST(WrapperBase, PrintsAndRefusesUnderTheStrategysName) {
  const Counted<CountedNetImpl> wrapper(std::make_shared<CountedNetImpl>());
  std::ostringstream text;
  text << *wrapper;
  EXPECT_EQ(text.str().rfind("Counted(", 0), 0) << text.str();
  try {
    wrapper->clone();
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_STREQ(error.what_without_backtrace(),
                 "[cohort] Counted cannot be cloned; clone the inner module() and wrap the copy");
  }
}

static_assert(std::is_same_v<ForwardSignature<torch::nn::LinearImpl>, at::Tensor(const at::Tensor&)>);
static_assert(std::is_same_v<ForwardSignature<torch::nn::SequentialImpl>, at::Tensor(at::Tensor)>);
static_assert(std::is_same_v<ForwardSignature<torch::nn::Module>, NoSignature>);

}  // namespace
}  // namespace cohort::parallel
