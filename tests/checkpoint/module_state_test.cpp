// What a module's state dict leaves out and says beside its tensors, and what load_state_dict makes of names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <string>

#include "cohort/checkpoint/optimizer/python_values.h"
#include "cohort/checkpoint/state/persistence.h"
#include "cohort/checkpoint/state/state_dict.h"
#include "cohort/parallel/activation/activation_checkpoint.h"
#include "tests/data/error_text.h"

namespace cohort::checkpoint {
namespace {

namespace nn = torch::nn;
using test::error_text;
using testing::ElementsAre;

struct MaskedImpl : nn::Module {
  MaskedImpl() {
    register_parameter("weight", torch::ones({2}));
    register_buffer("mask", torch::ones({2}));
    register_buffer("count", torch::zeros({}));
    mark_non_persistent(*this, "mask");
  }
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCH_MODULE(Masked);

TEST(Persistence, LeavesOutWhatIsMarked) {
  nn::Sequential net{Masked(), Masked()};
  EXPECT_THAT(state_dict(*net).keys(), ElementsAre("0.weight", "0.count", "1.weight", "1.count"));
  net->to(at::kDouble);
  EXPECT_EQ(state_dict(*net).size(), 4u);
  unmark_non_persistent(*net->children()[0], "mask");
  EXPECT_THAT(state_dict(*net).keys(), ElementsAre("0.weight", "0.mask", "0.count", "1.weight", "1.count"));
}

TEST(Persistence, AMarkIsTheBuffersAndGoesWithIt) {
  for (int i = 0; i < 100; ++i) {
    Masked gone;
    const auto buffer = torch::ones({2});
    EXPECT_FALSE(is_non_persistent(buffer));
  }
}

TEST(Persistence, WhatIsLeftOutIsUnexpected) {
  Masked net;
  StateDict state = state_dict(*net);
  state.insert("mask", torch::zeros({2}));
  EXPECT_EQ(error_text<c10::Error>([&] { load_state_dict(*net, state); }),
            "Error(s) in loading state_dict for Masked:\n\tUnexpected key(s) in state_dict: \"mask\". ");
  EXPECT_TRUE(net->named_buffers()["mask"].equal(torch::ones({2})));
}

TEST(Persistence, NoSuchBufferMessage) {
  Masked net;
  const auto text = error_text<c10::ValueError>([&] { mark_non_persistent(*net, "masc"); });
  EXPECT_THAT(text, testing::StartsWith("[cohort] "));
  EXPECT_THAT(text, testing::EndsWith(" has no buffer \"masc\" (did you mean \"mask\"?)\n"
                                      "  hint: pass the module that registers it, and the name without the module's"));
}

int64_t version_in(const c10::IValue& metadata, const std::string& module) {
  return detail::entry_of(detail::entry_of(metadata, module), "version").toInt();
}

TEST(StateDictMetadata, HasPythonsVersionOfEachModule) {
  const nn::Sequential net{nn::Linear(2, 2), nn::BatchNorm1d(2)};
  const auto metadata = state_dict_metadata(*net);
  std::vector<std::string> names;
  for (const auto& entry : metadata.toGenericDict()) names.push_back(entry.key().toStringRef());
  EXPECT_THAT(names, ElementsAre("", "0", "1"));
  EXPECT_EQ(version_in(metadata, ""), 1);
  EXPECT_EQ(version_in(metadata, "0"), 1);
  EXPECT_EQ(version_in(metadata, "1"), 2);
}

TEST(StateDictMetadata, OldBatchNormsLackTheNumberOfBatches) {
  nn::Sequential net{nn::BatchNorm1d(2)};
  StateDict state = state_dict(*net);
  state.erase("0.num_batches_tracked");
  EXPECT_TRUE(load_state_dict(*net, state).missing_keys.empty());
  EXPECT_EQ(
      error_text<c10::Error>([&] { load_state_dict(*net, state, {.metadata = state_dict_metadata(*net)}); }),
      "Error(s) in loading state_dict for Sequential:\n\tMissing key(s) in state_dict: \"0.num_batches_tracked\". ");
}

TEST(LoadStateDictNames, OfPythonsWrappersAreAccepted) {
  nn::Sequential from(nn::Linear(2, 3), nn::Linear(3, 1)), to(nn::Linear(2, 3), nn::Linear(3, 1));
  const StateDict state = state_dict(*from);
  StateDict wrapped;
  const char* const names[] = {"_orig_mod.0.weight", "_fsdp_wrapped_module.0._checkpoint_wrapped_module.bias",
                               "1._fsdp_wrapped_module.weight", "1.bias"};
  for (size_t i = 0; i < 4; ++i) wrapped.insert(names[i], state[i].value());
  load_state_dict(*to, wrapped);
  EXPECT_TRUE(state_dict(*to)["0.bias"].equal(state["0.bias"]));
  StateDict prefixed;
  for (const auto& item : wrapped) prefixed.insert("module." + item.key(), item.value() + 1);
  load_state_dict(*to, prefixed);
  EXPECT_TRUE(state_dict(*to)["1.weight"].equal(state["1.weight"] + 1));
}

TEST(LoadStateDictNames, OfOurWrappersHaveNoTrace) {
  nn::Sequential net(ActivationCheckpoint(nn::Linear(2, 3)));
  EXPECT_THAT(state_dict(*net).keys(), ElementsAre("0.weight", "0.bias"));
}

TEST(LoadStateDictNames, NearNamesMessage) {
  nn::Linear net(2, 3);
  StateDict state = state_dict(*net);
  state.insert("wieght", state["weight"]);
  state.erase("weight");
  EXPECT_EQ(error_text<c10::Error>([&] { load_state_dict(*net, state); }),
            "Error(s) in loading state_dict for Linear:\n"
            "\tMissing key(s) in state_dict: \"weight\". \n"
            "\tUnexpected key(s) in state_dict: \"wieght\". \n"
            "  hint: the checkpoint's \"wieght\" may be the model's \"weight\"");
}

}  // namespace
}  // namespace cohort::checkpoint
