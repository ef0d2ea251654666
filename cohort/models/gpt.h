/// GPT: a decoder-only transformer. Parameter names, shapes and initial values are nanoGPT's, so weights can be exchanged both
/// ways:
/// ```text
/// transformer.wte.weight, transformer.wpe.weight, transformer.h.0.ln_1.weight, transformer.h.0.attn.c_attn.weight,
/// transformer.h.0.attn.c_proj.weight, transformer.h.0.ln_2.weight, transformer.h.0.mlp.c_fc.weight,
/// transformer.h.0.mlp.c_proj.weight, transformer.ln_f.weight, lm_head.weight
/// ```
/// load_pretrained (pretrained.h) loads files of nanoGPT and of GPT-2.
///
///     cohort::models::GPT model(cohort::models::GPTOptions{.vocab_size = 256, .n_layer = 4});
///     at::Tensor logits = model(tokens);            // [batch, time] int64 -> [batch, time, vocab_size]
///     at::Tensor text = model->generate(tokens, {.max_new_tokens = 200});
///
/// Thread-safety: as any torch::nn module.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/models/pretrainable.h"

namespace cohort::models {

struct GPTOptions {
  /// The longest context in tokens. Longer inputs throw c10::ValueError.
  int64_t block_size = 128;
  int64_t vocab_size = 256;
  int64_t n_layer = 4;
  int64_t n_head = 4;
  /// The width, a multiple of n_head.
  int64_t n_embd = 128;
  double dropout = 0.0;
  /// lm_head shares wte's tensor, as in GPT-2. The tensor then has two names and appears twice in parameters().
  bool tie_weights = false;
  /// Adds a bias to linear maps and norms, as in GPT-2. nanoGPT trains without bias by default.
  bool bias = true;
};

/// Options of OpenAI's models: "gpt2", "gpt2-medium", "gpt2-large" or "gpt2-xl", with tied weights and without dropout. Throws
/// c10::ValueError for other names.
COHORT_API GPTOptions gpt2_options(const std::string& name = "gpt2");

/// How generate() chooses tokens.
struct GenerateOptions {
  int64_t max_new_tokens = 100;
  /// Divides the logits. 0 always takes the most likely token.
  double temperature = 1.0;
  /// Chooses only among the k most likely tokens. If absent, among all.
  std::optional<int64_t> top_k = {};
  /// If absent, LibTorch's default generator.
  std::optional<at::Generator> generator = {};
};

/// A LayerNorm over the last dimension, with or without a bias.
class COHORT_API GPTLayerNormImpl : public torch::nn::Cloneable<GPTLayerNormImpl> {
 public:
  explicit GPTLayerNormImpl(const GPTOptions& options);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  /// `bias` is undefined without a bias.
  at::Tensor weight, bias;

 private:
  GPTOptions options_;
};
TORCH_MODULE(GPTLayerNorm);

class COHORT_API CausalSelfAttentionImpl : public torch::nn::Cloneable<CausalSelfAttentionImpl> {
 public:
  explicit CausalSelfAttentionImpl(const GPTOptions& options);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear c_attn{nullptr}, c_proj{nullptr};

 private:
  GPTOptions options_;
};
TORCH_MODULE(CausalSelfAttention);

class COHORT_API GPTMLPImpl : public torch::nn::Cloneable<GPTMLPImpl> {
 public:
  explicit GPTMLPImpl(const GPTOptions& options);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear c_fc{nullptr}, c_proj{nullptr};

 private:
  GPTOptions options_;
};
TORCH_MODULE(GPTMLP);

/// Computes x + attn(ln_1(x)), then x + mlp(ln_2(x)).
class COHORT_API GPTBlockImpl : public torch::nn::Cloneable<GPTBlockImpl> {
 public:
  explicit GPTBlockImpl(const GPTOptions& options);
  void reset() override;
  at::Tensor forward(at::Tensor x);

  GPTLayerNorm ln_1{nullptr}, ln_2{nullptr};
  CausalSelfAttention attn{nullptr};
  GPTMLP mlp{nullptr};

 private:
  GPTOptions options_;
};
TORCH_MODULE(GPTBlock);

/// All layers below the head: embeddings, blocks, last norm.
class COHORT_API GPTTransformerImpl : public torch::nn::Cloneable<GPTTransformerImpl> {
 public:
  explicit GPTTransformerImpl(const GPTOptions& options);
  void reset() override;
  at::Tensor forward(const at::Tensor& tokens);

  torch::nn::Embedding wte{nullptr}, wpe{nullptr};
  /// Holds GPTBlocks, or wrappers of them, such as fully_shard's: replace_module("h", ...).
  torch::nn::Sequential h;
  GPTLayerNorm ln_f{nullptr};

  /// The positions of the tokens in the text, int64 [time]; if undefined, 0, 1, 2 and so on. For ranks that shard a text
  /// (ContextParallel): its buffers are `tokens` and these.
  at::Tensor positions;
  /// Runs block number `layer` in forward, such as under a checkpoint. If empty, forward calls block.forward(x).
  std::function<at::Tensor(torch::nn::AnyModule& block, const at::Tensor& x, int64_t layer)> run_block;

 private:
  GPTOptions options_;
};
TORCH_MODULE(GPTTransformer);

/// A linear map without bias that may share the weight of another module.
class COHORT_API GPTHeadImpl : public torch::nn::Cloneable<GPTHeadImpl> {
 public:
  explicit GPTHeadImpl(at::Tensor weight);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;
};
TORCH_MODULE(GPTHead);

class COHORT_API GPTImpl : public torch::nn::Cloneable<GPTImpl>, public Pretrainable {
 public:
  /// Throws c10::ValueError for sizes that cannot work; the message names the option.
  explicit GPTImpl(const GPTOptions& options = {});
  void reset() override;
  /// Returns a copy with its own parameters. Tied weights are tied in the copy, too.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device = std::nullopt) const override;

  /// Requires: `tokens` int64 [batch, time], time <= block_size. Returns: logits [batch, time, vocab_size].
  at::Tensor forward(const at::Tensor& tokens);

  /// Appends max_new_tokens tokens to `tokens` [batch, time >= 1], each drawn from the model's prediction. Runs in evaluation
  /// mode without gradients, and restores the mode.
  at::Tensor generate(const at::Tensor& tokens, const GenerateOptions& options = {});

  /// The number of elements of all different parameters.
  int64_t num_parameters() const;
  const GPTOptions& options() const { return options_; }

  /// Adapts GPT-2's files: names without "transformer.", transposed maps, masks, and a missing head. Truncates position
  /// embeddings of a longer context.
  checkpoint::StateDict adapted_weights(checkpoint::StateDict weights, std::vector<std::string>* notes) const override;

  GPTTransformer transformer{nullptr};
  GPTHead lm_head{nullptr};

 private:
  GPTOptions options_;
};
TORCH_MODULE(GPT);

/// The parameters to which AdamW should apply weight decay (matrices and embeddings) and the others (biases, norms), each once,
/// in the order of parameters().
struct DecayGroups {
  std::vector<at::Tensor> decayed;
  std::vector<at::Tensor> not_decayed;
};
COHORT_API DecayGroups decay_groups(const std::vector<at::Tensor>& parameters);

}  // namespace cohort::models
