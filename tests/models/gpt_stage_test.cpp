#include "cohort/models/gpt_stage.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "cohort/checkpoint/state/distributed_state.h"

namespace cohort::models {
namespace {

const GPTOptions kFourBlocks{.block_size = 8, .vocab_size = 11, .n_layer = 4, .n_head = 2, .n_embd = 8};

std::vector<size_t> sizes_of(const std::vector<GPTStage>& stages) {
  std::vector<size_t> sizes;
  for (const auto& stage : stages) sizes.push_back(stage->h->size());
  return sizes;
}

TEST(GptStage, PartsGiveWhatTheModelGives) {
  GPT model(kFourBlocks);
  const at::Tensor tokens = at::randint(11, {2, 8}, at::kLong);
  auto stages = split_gpt(model, {1, 2, 1});
  at::Tensor x = tokens;
  for (auto& stage : stages) x = stage(x);
  EXPECT_TRUE(at::equal(x, model(tokens)));
  EXPECT_TRUE(stages[0]->has_embeddings() && !stages[0]->has_head());
  EXPECT_TRUE(!stages[1]->has_embeddings() && !stages[1]->has_head());
  EXPECT_TRUE(!stages[2]->has_embeddings() && stages[2]->has_head());
}

TEST(GptStage, NamesAreTheModels) {
  for (const bool is_tied : {false, true}) {
    GPTOptions options = kFourBlocks;
    options.tie_weights = is_tied;
    GPT model(options);
    std::set<std::string> names;
    for (const auto& stage : split_gpt(model, 2)) {
      for (const auto& item : stage->named_parameters()) {
        EXPECT_TRUE(names.insert(item.key()).second) << item.key();
        EXPECT_TRUE(item.value().is_same(model->named_parameters()[item.key()])) << item.key();
      }
    }
    const auto expected = model->named_parameters().keys();
    EXPECT_EQ(names, std::set<std::string>(expected.begin(), expected.end()));
  }
}

TEST(GptStage, ATiedWeightIsFoundUnderEitherName) {
  GPTOptions options = kFourBlocks;
  options.tie_weights = true;
  const GPT model(options);
  const std::string names[] = {"transformer.wte.weight", "lm_head.weight"};
  for (const std::string& stored : names) {
    checkpoint::ShardedStateDict state;
    for (const auto& item : checkpoint::get_model_state_dict(*model)) {
      if (item.key() != names[0] && item.key() != names[1]) state.insert(item.key(), item.value());
    }
    state.insert(stored, model->lm_head->weight.detach());
    for (const int64_t block : {0, 3}) {
      const GPTStage stage(GPT(options), block, 1);
      const at::Tensor weight = block == 0 ? stage->wte->weight : stage->lm_head->weight;
      weight.detach().fill_(-1);
      checkpoint::set_model_state_dict(*stage.ptr(), state, {.strict = false});
      EXPECT_TRUE(weight.equal(model->lm_head->weight)) << block << " " << stored;
    }
  }
  const auto untied = split_gpt(GPT(kFourBlocks), 2);
  EXPECT_TRUE(checkpoint::get_model_state_dict(*untied[1].ptr())["lm_head.weight"].tied.others.empty());
}

TEST(GptStage, BlocksRunAsTheModelRunsThem) {
  GPT model(kFourBlocks);
  std::vector<int64_t> layers;
  model->transformer->run_block = [&](torch::nn::AnyModule& block, const at::Tensor& x, int64_t layer) {
    layers.push_back(layer);
    return block.forward(x);
  };
  auto stages = split_gpt(model, 2);
  (void)stages[1](at::ones({1, 3, 8}));
  EXPECT_EQ(layers, (std::vector<int64_t>{2, 3}));
}

TEST(GptStage, TheHeadCountsAsBlocks) {
  EXPECT_EQ(sizes_of(split_gpt(GPT(kFourBlocks), 2)), (std::vector<size_t>{2, 2}));
  GPTOptions options = kFourBlocks;
  options.vocab_size = 300;  // as many numbers as three blocks have
  EXPECT_EQ(sizes_of(split_gpt(GPT(options), 2)), (std::vector<size_t>{3, 1}));
}

std::string error_of_stages(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(GptStage, RefusalsMessage) {
  GPT model(kFourBlocks);
  EXPECT_EQ(error_of_stages([&] {
              split_gpt(model, {1, 2});
            }),
            "[cohort] pipeline: the counts [1, 2] do not fit 4 layers\n"
            "  hint: give a positive number for each stage; their sum is the number of layers");
  EXPECT_EQ(error_of_stages([&] { split_gpt(model, 5); }),
            "[cohort] pipeline: 4 layers cannot be split over 5 stages\n"
            "  hint: use fewer stages: each needs at least one layer");
  EXPECT_EQ(error_of_stages([&] { GPTStage(model, 3, 2); }),
            "[cohort] GPT: a stage cannot have 2 blocks from number 3 on: the model has n_layer 4");
  EXPECT_EQ(error_of_stages([&] {
              split_gpt(model, 2)[0](at::ones({1, 9}, at::kLong));
            }),
            "[cohort] GPT: the first stage needs int64 tokens [batch, time], at most 8 at once, got Long [1, 9]");
}

}  // namespace
}  // namespace cohort::models
