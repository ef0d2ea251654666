#include "cohort/checkpoint/state/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "tests/data/error_text.h"

namespace cohort::checkpoint {
namespace {

namespace nn = torch::nn;
using test::error_text;
using testing::ElementsAre;

struct NetImpl : nn::Module {
  NetImpl() {
    layers = register_module("layers", nn::Sequential(nn::Linear(2, 3), nn::BatchNorm1d(3)));
    scale = register_parameter("scale", torch::ones({1}));
    calls = register_buffer("calls", torch::zeros({}, at::kLong));
  }
  nn::Sequential layers{nullptr};
  at::Tensor scale, calls;
};
TORCH_MODULE(Net);

StateDict copy_of(const StateDict& state, const std::string& prefix = "") {
  StateDict copy;
  for (const auto& item : state) copy.insert(prefix + item.key(), item.value().clone());
  return copy;
}

TEST(StateDict, HasPyTorchsNamesInPyTorchsOrder) {
  EXPECT_THAT(state_dict(*Net()).keys(),
              ElementsAre("scale", "calls", "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias",
                          "layers.1.running_mean", "layers.1.running_var", "layers.1.num_batches_tracked"));
}

TEST(StateDict, LeavesOutWhatIsUndefined) {
  EXPECT_THAT(state_dict(*nn::Linear(nn::LinearOptions(2, 3).bias(false))).keys(), ElementsAre("weight"));
}

TEST(StateDict, SharesMemoryWithoutAutograd) {
  nn::Linear net(2, 3);
  const StateDict state = state_dict(*net);
  EXPECT_FALSE(state["weight"].requires_grad());
  EXPECT_EQ(state["weight"].data_ptr(), net->weight.data_ptr());
}

TEST(LoadStateDict, CopiesEveryValue) {
  Net from, to;
  from->calls.fill_(7);
  const IncompatibleKeys keys = load_state_dict(*to, state_dict(*from));
  EXPECT_TRUE(keys.missing_keys.empty() && keys.unexpected_keys.empty());
  const StateDict expected = state_dict(*from);
  for (const auto& item : state_dict(*to)) EXPECT_TRUE(item.value().equal(expected[item.key()])) << item.key();
  EXPECT_TRUE(to->scale.requires_grad());
}

TEST(LoadStateDict, ConvertsDtypes) {
  nn::Linear from(2, 3), to(2, 3);
  from->to(at::kDouble);
  load_state_dict(*to, state_dict(*from));
  EXPECT_EQ(to->weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(to->weight.equal(from->weight.to(at::kFloat)));
}

TEST(LoadStateDict, AcceptsTheWrapperPrefix) {
  Net from, to;
  load_state_dict(*to, copy_of(state_dict(*from), "module."));
  EXPECT_TRUE(to->layers->named_parameters()["0.weight"].equal(from->layers->named_parameters()["0.weight"]));
}

TEST(LoadStateDict, KeepsThePrefixOfAChildNamedModule) {
  struct Outer : nn::Module {
    Outer() { register_module("module", nn::Linear(2, 3)); }
  } from, to;
  load_state_dict(to, copy_of(state_dict(from)));
  load_state_dict(to, copy_of(state_dict(from), "module."));
  EXPECT_TRUE(to.parameters()[0].equal(from.parameters()[0]));
}

TEST(LoadStateDict, MissingUnexpectedAndMismatchMessage) {
  nn::Sequential net(nn::Linear(2, 3));
  const StateDict before = copy_of(state_dict(*net));
  StateDict state;
  state.insert("0.weight", torch::zeros({4, 2}));
  state.insert("0.gain", torch::zeros({1}));
  state.insert("1.weight", torch::zeros({1}));
  EXPECT_EQ(error_text<c10::Error>([&] { load_state_dict(*net, state); }),
            "Error(s) in loading state_dict for Sequential:\n"
            "\tMissing key(s) in state_dict: \"0.bias\". \n"
            "\tUnexpected key(s) in state_dict: \"1.weight\", \"0.gain\". \n"
            "\tsize mismatch for 0.weight: copying a param with shape torch.Size([4, 2]) from checkpoint, the shape in "
            "current model is torch.Size([3, 2]).");
  EXPECT_TRUE(state_dict(*net)["0.weight"].equal(before["0.weight"]));
}

TEST(LoadStateDict, ManyModulesAndUnknownNamesTakeNoLongerThanTheyAre) {
  nn::Sequential net;
  for (int i = 0; i < 2000; ++i) net->push_back(nn::Linear(1, 1));
  StateDict state = state_dict(*net);
  for (int i = 0; i < 100'000; ++i)
    state.insert(std::to_string(i % 3000) + ".unknown" + std::to_string(i), torch::Tensor());
  const IncompatibleKeys keys = load_state_dict(*net, state, {.strict = false});
  EXPECT_EQ(keys.unexpected_keys.size(), 100'000u);
  EXPECT_EQ(keys.unexpected_keys.front(), "2000.unknown2000") << "the root's come first";
  EXPECT_EQ(keys.unexpected_keys.back(), "1999.unknown" + std::to_string(99'999 - (99'999 - 1999) % 3000));
  EXPECT_TRUE(keys.missing_keys.empty());
}

TEST(LoadStateDict, NotStrictReturnsTheKeysButChecksShapes) {
  nn::Linear net(2, 3);
  StateDict state;
  state.insert("weight", torch::ones({3, 2}));
  state.insert("gain", torch::ones({1}));
  const IncompatibleKeys keys = load_state_dict(*net, state, {.strict = false});
  EXPECT_THAT(keys.missing_keys, ElementsAre("bias"));
  EXPECT_THAT(keys.unexpected_keys, ElementsAre("gain"));
  EXPECT_TRUE(net->weight.equal(torch::ones({3, 2})));
  state["weight"] = torch::ones({6});
  EXPECT_EQ(
      error_text<c10::Error>([&] { load_state_dict(*net, state, {.strict = false}); }),
      "Error(s) in loading state_dict for Linear:\n"
      "\tsize mismatch for weight: copying a param with shape torch.Size([6]) from checkpoint, the shape in current "
      "model is torch.Size([3, 2]).");
}

TEST(LoadStateDict, OldScalarsHaveOneDimension) {
  Net net;
  StateDict state = copy_of(state_dict(*net));
  state["calls"] = torch::full({1}, 5, at::kLong);
  load_state_dict(*net, state);
  EXPECT_EQ(net->calls.item<int64_t>(), 5);
}

}  // namespace
}  // namespace cohort::checkpoint
