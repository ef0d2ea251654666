/// GPT: a decoder-only transformer. Parameter names, shapes and initial values follow nanoGPT, so weights travel both ways:
///     transformer.wte.weight, transformer.wpe.weight, transformer.h.0.ln_1.weight, transformer.h.0.attn.c_attn.weight,
///     transformer.h.0.attn.c_proj.weight, transformer.h.0.ln_2.weight, transformer.h.0.mlp.c_fc.weight,
///     transformer.h.0.mlp.c_proj.weight, transformer.ln_f.weight, lm_head.weight
/// Files of nanoGPT and of GPT-2 load with load_pretrained (pretrained.h).
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
  /// Longest context in tokens; longer inputs throw c10::ValueError.
  int64_t block_size = 128;
  int64_t vocab_size = 256;
  int64_t n_layer = 4;
  int64_t n_head = 4;
  /// Width; a multiple of n_head.
  int64_t n_embd = 128;
  double dropout = 0.0;
  /// lm_head shares wte's tensor, as in GPT-2. Such a tensor has two names and appears twice in parameters().
  bool tie_weights = false;
  /// Linear maps and norms add a bias, as in GPT-2. nanoGPT's own training leaves it out unless told otherwise.
  bool bias = true;
};

/// Of OpenAI's models: "gpt2", "gpt2-medium", "gpt2-large" or "gpt2-xl", with tied weights and without dropout.
/// Throws c10::ValueError for other names.
COHORT_API GPTOptions gpt2_options(const std::string& name = "gpt2");

/// How generate() picks tokens.
struct GenerateOptions {
  int64_t max_new_tokens = 100;
  /// Divides the logits; 0 always takes the likeliest token.
  double temperature = 1.0;
  /// Only the k likeliest tokens may follow; absent: all.
  std::optional<int64_t> top_k = {};
  /// Absent: LibTorch's default generator.
  std::optional<at::Generator> generator = {};
};

/// A LayerNorm over the last dimension, whose bias may be left out.
class COHORT_API GPTLayerNormImpl : public torch::nn::Cloneable<GPTLayerNormImpl> {
 public:
  explicit GPTLayerNormImpl(const GPTOptions& options);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  /// `bias` is undefined where there is none.
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

/// x + attn(ln_1(x)), then x + mlp(ln_2(x)).
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

/// Everything below the head: embeddings, blocks, last norm.
class COHORT_API GPTTransformerImpl : public torch::nn::Cloneable<GPTTransformerImpl> {
 public:
  explicit GPTTransformerImpl(const GPTOptions& options);
  void reset() override;
  at::Tensor forward(const at::Tensor& tokens);

  torch::nn::Embedding wte{nullptr}, wpe{nullptr};
  /// Of GPTBlock. Wrappers of them, such as fully_shard's, may stand in their places: replace_module("h", ...).
  torch::nn::Sequential h;
  GPTLayerNorm ln_f{nullptr};

  /// Where in the text the tokens stand, int64 [time]; undefined: 0, 1, 2 and so on. For ranks that share a text out
  /// (ContextParallel): its buffers are `tokens` and these.
  at::Tensor positions;
  /// How forward runs block number `layer`, such as under a checkpoint; empty: block.forward(x).
  std::function<at::Tensor(torch::nn::AnyModule& block, const at::Tensor& x, int64_t layer)> run_block;

 private:
  GPTOptions options_;
};
TORCH_MODULE(GPTTransformer);

/// A linear map without bias whose weight may be another module's.
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
  /// A copy with values of its own; tied weights are tied in the copy too.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device = std::nullopt) const override;

  /// Requires: `tokens` int64 [batch, time], time <= block_size. Returns: logits [batch, time, vocab_size].
  at::Tensor forward(const at::Tensor& tokens);

  /// Appends max_new_tokens tokens to `tokens` [batch, time >= 1], each drawn from the model's prediction.
  /// Runs in evaluation mode without gradients, and restores the mode.
  at::Tensor generate(const at::Tensor& tokens, const GenerateOptions& options = {});

  /// Number of different parameters' elements.
  int64_t num_parameters() const;
  const GPTOptions& options() const { return options_; }

  /// GPT-2's names without "transformer.", its transposed maps, its masks and its missing head; position embeddings of a
  /// longer context are cut.
  checkpoint::StateDict adapted_weights(checkpoint::StateDict weights, std::vector<std::string>* notes) const override;

  GPTTransformer transformer{nullptr};
  GPTHead lm_head{nullptr};

 private:
  GPTOptions options_;
};
TORCH_MODULE(GPT);

/// The parameters that AdamW should decay (matrices and embeddings) and those it should not (biases, norms),
/// each once, in parameters() order.
struct DecayGroups {
  std::vector<at::Tensor> decayed;
  std::vector<at::Tensor> not_decayed;
};
COHORT_API DecayGroups decay_groups(const std::vector<at::Tensor>& parameters);

}  // namespace cohort::models
