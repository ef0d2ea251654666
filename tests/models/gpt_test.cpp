#include "cohort/models/gpt.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adamw.h>

#include <set>
#include <string>

namespace cohort::models {
namespace {

const GPTOptions kTiny{.block_size = 8, .vocab_size = 11, .n_layer = 2, .n_head = 2, .n_embd = 8};

at::Tensor some_tokens(int64_t batch, int64_t time) { return at::randint(kTiny.vocab_size, {batch, time}, at::kLong); }

TEST(Gpt, HasNanoGptsParameterNames) {
  std::vector<std::string> names;
  for (const auto& item :
       GPT(GPTOptions{.block_size = 8, .vocab_size = 11, .n_layer = 1, .n_head = 2, .n_embd = 8})->named_parameters()) {
    names.push_back(item.key());
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
                "transformer.h.0.ln_1.bias", "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn.bias",
                "transformer.h.0.attn.c_proj.weight", "transformer.h.0.attn.c_proj.bias", "transformer.h.0.ln_2.weight",
                "transformer.h.0.ln_2.bias", "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_fc.bias",
                "transformer.h.0.mlp.c_proj.weight", "transformer.h.0.mlp.c_proj.bias", "transformer.ln_f.weight",
                "transformer.ln_f.bias", "lm_head.weight"}));
}

TEST(Gpt, StartsNearTheUniformLoss) {
  torch::manual_seed(0);
  GPT model(kTiny);
  const at::Tensor tokens = some_tokens(16, 8);
  const at::Tensor loss = torch::nn::functional::cross_entropy(model(tokens).flatten(0, 1), tokens.flatten());
  EXPECT_NEAR(loss.item<double>(), std::log(11.0), 0.05);
}

TEST(Gpt, InitialValuesFollowNanoGpt) {
  torch::manual_seed(0);
  GPT model(GPTOptions{.n_layer = 8, .n_embd = 128});
  const auto block = model->transformer->h[3]->as<GPTBlockImpl>();
  EXPECT_NEAR(model->transformer->wte->weight.std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(block->attn->c_attn->weight.std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(block->attn->c_proj->weight.std().item<double>(), 0.02 / 4, 0.0003);
  EXPECT_NEAR(block->mlp->c_proj->weight.std().item<double>(), 0.02 / 4, 0.0003);
  EXPECT_EQ(block->mlp->c_fc->bias.abs().max().item<double>(), 0.0);
  EXPECT_EQ(block->ln_1->weight.min().item<double>(), 1.0);
}

TEST(Gpt, LooksAtNoLaterToken) {
  GPT model(kTiny);
  at::Tensor tokens = some_tokens(1, 8);
  const at::Tensor before = model(tokens);
  tokens[0][5] = (tokens[0][5].item<int64_t>() + 1) % kTiny.vocab_size;
  const at::Tensor after = model(tokens);
  EXPECT_TRUE(at::allclose(before.narrow(1, 0, 5), after.narrow(1, 0, 5)));
  EXPECT_FALSE(at::allclose(before.narrow(1, 5, 1), after.narrow(1, 5, 1)));
}

TEST(Gpt, LearnsARepeatedText) {
  torch::manual_seed(0);
  GPT model(kTiny);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
  const at::Tensor text = at::arange(9, at::kLong).unsqueeze(0);
  double loss = 0.0;
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    const at::Tensor logits = model(text.narrow(1, 0, 8));
    const at::Tensor batch_loss = torch::nn::functional::cross_entropy(logits.squeeze(0), text[0].narrow(0, 1, 8));
    batch_loss.backward();
    optimizer.step();
    loss = batch_loss.item<double>();
  }
  EXPECT_LT(loss, 0.05);
  const at::Tensor generated = model->generate(text.narrow(1, 0, 1), {.max_new_tokens = 7, .temperature = 0.0});
  EXPECT_TRUE(at::equal(generated[0], text[0].narrow(0, 0, 8)));
}

TEST(Gpt, GeneratesBeyondItsContextAndFollowsTheGenerator) {
  GPT model(kTiny);
  model->train();
  const auto sample = [&](uint64_t seed) {
    at::Generator generator = at::detail::createCPUGenerator(seed);
    return model->generate(at::zeros({2, 1}, at::kLong), {.max_new_tokens = 20, .generator = generator});
  };
  const at::Tensor first = sample(1);
  EXPECT_EQ(first.sizes(), (at::IntArrayRef{2, 21}));
  EXPECT_TRUE(at::equal(first, sample(1)));
  EXPECT_FALSE(at::equal(first, sample(2)));
  EXPECT_TRUE(model->is_training());
}

TEST(Gpt, TopKKeepsTheLikeliest) {
  GPT model(kTiny);
  const at::Tensor prompt = at::zeros({1, 1}, at::kLong);
  const at::Tensor likeliest = model->generate(prompt, {.max_new_tokens = 5, .temperature = 0.0});
  EXPECT_TRUE(at::equal(likeliest, model->generate(prompt, {.max_new_tokens = 5, .top_k = 1})));

  torch::manual_seed(0);
  const at::Tensor both = std::get<1>(model(prompt)[0][0].topk(2));
  const at::Tensor drawn =
      model->generate(at::zeros({64, 1}, at::kLong), {.max_new_tokens = 1, .top_k = 2}).select(1, 1);
  EXPECT_EQ(drawn.eq(both[0]).sum().item<int64_t>() + drawn.eq(both[1]).sum().item<int64_t>(), 64);
  EXPECT_TRUE(drawn.eq(both[1]).any().item<bool>());
}

TEST(Gpt, TiedHeadIsOneParameterWithTwoNames) {
  GPTOptions options = kTiny;
  options.tie_weights = true;
  GPT model(options);
  EXPECT_TRUE(model->lm_head->weight.is_same(model->transformer->wte->weight));
  EXPECT_EQ(model->num_parameters(), GPT(kTiny)->num_parameters() - 11 * 8);
  model->to(at::kDouble);
  EXPECT_TRUE(model->lm_head->weight.is_same(model->transformer->wte->weight));
  const auto copy = std::dynamic_pointer_cast<GPTImpl>(model->clone());
  EXPECT_TRUE(copy->lm_head->weight.is_same(copy->transformer->wte->weight));
}

TEST(Gpt, HasNoBiasesIfItIsToldSo) {
  GPTOptions options = kTiny;
  options.bias = false;
  GPT model(options);
  for (const auto& item : model->named_parameters()) EXPECT_FALSE(item.key().ends_with("bias")) << item.key();
  EXPECT_EQ(model->num_parameters(), GPT(kTiny)->num_parameters() - 2 * (2 * 8 + 24 + 8 + 32 + 8) - 8);
  const at::Tensor tokens = some_tokens(2, 8);
  const auto copy = std::dynamic_pointer_cast<GPTImpl>(model->clone());
  EXPECT_TRUE(at::equal(model(tokens), copy->forward(tokens)));
}

TEST(Gpt, Gpt2OptionsHaveOpenAisSizes) {
  const GPTOptions options = gpt2_options("gpt2-medium");
  EXPECT_EQ(options.n_layer, 24);
  EXPECT_EQ(options.n_head, 16);
  EXPECT_EQ(options.n_embd, 1024);
  EXPECT_EQ(options.vocab_size, 50257);
  EXPECT_EQ(options.block_size, 1024);
  EXPECT_TRUE(options.tie_weights && options.bias);
}

TEST(Gpt, CloneHasValuesOfItsOwn) {
  GPT model(kTiny);
  const auto copy = std::dynamic_pointer_cast<GPTImpl>(model->clone());
  const auto ours = model->parameters(), theirs = copy->parameters();
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_FALSE(ours[i].is_same(theirs[i]) || ours[i].is_alias_of(theirs[i]));
    EXPECT_TRUE(at::equal(ours[i], theirs[i]));
  }
  EXPECT_TRUE(copy->lm_head->weight.is_same(theirs.back()));
}

TEST(Gpt, DropoutActsOnlyInTraining) {
  GPTOptions options = kTiny;
  options.dropout = 0.5;
  GPT model(options);
  const at::Tensor tokens = some_tokens(2, 8);
  EXPECT_FALSE(at::equal(model(tokens), model(tokens)));
  model->eval();
  EXPECT_TRUE(at::equal(model(tokens), model(tokens)));
}

TEST(Gpt, DecaysMatricesOnceAndNothingElse) {
  GPTOptions options = kTiny;
  options.tie_weights = true;
  GPT model(options);
  const DecayGroups groups = decay_groups(model->parameters());
  std::set<const void*> seen;
  for (const auto& tensor : groups.decayed) {
    EXPECT_GE(tensor.dim(), 2);
    EXPECT_TRUE(seen.insert(tensor.unsafeGetTensorImpl()).second);
  }
  for (const auto& tensor : groups.not_decayed) EXPECT_EQ(tensor.dim(), 1);
  EXPECT_EQ(groups.decayed.size() + groups.not_decayed.size(), model->parameters().size() - 1);
}

template <typename Fn>
std::string value_error(Fn fn) {
  try {
    fn();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(Gpt, WrongArgumentsMessage) {
  EXPECT_EQ(value_error([] { GPT(GPTOptions{.n_head = 3, .n_embd = 128}); }),
            "[cohort] GPT: n_embd must be a multiple of n_head, got n_embd 128 and n_head 3");
  EXPECT_EQ(value_error([] { GPT(GPTOptions{.n_layer = 0}); }),
            "[cohort] GPT: option \"n_layer\" must be at least 1, got 0");
  EXPECT_EQ(value_error([] { GPT(GPTOptions{.dropout = 1.0}); }), "[cohort] GPT: dropout must be in [0, 1), got 1");
  GPT model(kTiny);
  EXPECT_EQ(value_error([&] { model(some_tokens(1, 9)); }),
            "[cohort] GPT: cannot read 9 tokens at once: block_size is 8");
  EXPECT_EQ(value_error([&] { model(at::zeros({4})); }),
            "[cohort] GPT: forward needs int64 tokens [batch, time], got Float [4]");
  EXPECT_EQ(value_error([&] { model->generate(some_tokens(1, 0)); }),
            "[cohort] GPT: generate needs a prompt [batch, time] of one token or more, got [1, 0]");
  EXPECT_EQ(value_error([&] { model->generate(some_tokens(1, 1), {.top_k = 0}); }),
            "[cohort] GPT: top_k must be at least 1, got 0");
  EXPECT_EQ(value_error([&] { gpt2_options("gpt2-medum"); }),
            "[cohort] gpt2_options: there is no GPT-2 named \"gpt2-medum\" (did you mean \"gpt2-medium\"?)\n"
            "  hint: use one of \"gpt2\", \"gpt2-medium\", \"gpt2-large\", \"gpt2-xl\"");
}

}  // namespace
}  // namespace cohort::models
