#include "cohort/models/gpt.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/init.h>

#include <cmath>
#include <unordered_set>
#include <utility>

#include "cohort/base/text/text.h"

namespace cohort::models {
namespace {

// nanoGPT's initial values: normal(0, 0.02), divided by sqrt(2 * layers) for the maps that end a residual branch.
constexpr double kInitialStddev = 0.02;

struct Gpt2Row {
  const char* name;
  int64_t n_layer, n_head, n_embd;
};
constexpr Gpt2Row kGpt2Rows[] = {
    {"gpt2", 12, 12, 768}, {"gpt2-medium", 24, 16, 1024}, {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}};

torch::nn::Linear make_linear(int64_t in, int64_t out, double stddev, bool has_bias) {
  torch::nn::Linear linear(torch::nn::LinearOptions(in, out).bias(has_bias));
  torch::nn::init::normal_(linear->weight, 0.0, stddev);
  if (has_bias) torch::nn::init::zeros_(linear->bias);
  return linear;
}

torch::nn::Embedding make_embedding(int64_t count, int64_t width) {
  torch::nn::Embedding embedding(count, width);
  torch::nn::init::normal_(embedding->weight, 0.0, kInitialStddev);
  return embedding;
}

double residual_stddev(const GPTOptions& options) {
  return kInitialStddev / std::sqrt(2.0 * static_cast<double>(options.n_layer));
}

at::Tensor dropout(const at::Tensor& x, const GPTOptions& options, bool is_training) {
  return options.dropout > 0.0 && is_training ? at::dropout(x, options.dropout, true) : x;
}

void check_gpt_options(const GPTOptions& options) {
  const std::pair<const char*, int64_t> sizes[] = {{"block_size", options.block_size},
                                                   {"vocab_size", options.vocab_size},
                                                   {"n_layer", options.n_layer},
                                                   {"n_head", options.n_head},
                                                   {"n_embd", options.n_embd}};
  for (const auto& [name, value] : sizes) {
    TORCH_CHECK_VALUE(value >= 1, "[cohort] GPT: option \"", name, "\" must be at least 1, got ", value);
  }
  TORCH_CHECK_VALUE(options.n_embd % options.n_head == 0,
                    "[cohort] GPT: n_embd must be a multiple of n_head, got n_embd ", options.n_embd, " and n_head ",
                    options.n_head);
  TORCH_CHECK_VALUE(options.dropout >= 0.0 && options.dropout < 1.0, "[cohort] GPT: dropout must be in [0, 1), got ",
                    options.dropout);
}

at::Tensor pick_next(at::Tensor logits, const GenerateOptions& options) {
  if (options.temperature == 0.0) return logits.argmax(-1, /*keepdim=*/true);
  logits = logits / options.temperature;
  if (options.top_k && *options.top_k < logits.size(-1)) {
    const at::Tensor kept = std::get<0>(logits.topk(*options.top_k));
    logits = logits.masked_fill(logits < kept.narrow(-1, *options.top_k - 1, 1), -INFINITY);
  }
  return at::multinomial(logits.softmax(-1), 1, /*replacement=*/false, options.generator);
}

// Restores the mode of a module.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  ~EvaluationMode() { module_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool was_training_;
};

}  // namespace

GPTOptions gpt2_options(const std::string& name) {
  std::vector<std::string> names;
  for (const Gpt2Row& row : kGpt2Rows) {
    if (name == row.name) {
      return {.block_size = 1024,
              .vocab_size = 50257,
              .n_layer = row.n_layer,
              .n_head = row.n_head,
              .n_embd = row.n_embd,
              .tie_weights = true};
    }
    names.emplace_back(row.name);
  }
  TORCH_CHECK_VALUE(false, "[cohort] gpt2_options: there is no GPT-2 named \"", name, "\"",
                    base::did_you_mean(name, names), "\n  hint: use one of ", base::quoted_list(names));
}

GPTLayerNormImpl::GPTLayerNormImpl(const GPTOptions& options) : options_(options) { reset(); }

void GPTLayerNormImpl::reset() {
  weight = register_parameter("weight", at::ones({options_.n_embd}));
  bias = options_.bias ? register_parameter("bias", at::zeros({options_.n_embd})) : at::Tensor();
}

at::Tensor GPTLayerNormImpl::forward(const at::Tensor& x) { return at::layer_norm(x, {options_.n_embd}, weight, bias); }

CausalSelfAttentionImpl::CausalSelfAttentionImpl(const GPTOptions& options) : options_(options) { reset(); }

void CausalSelfAttentionImpl::reset() {
  c_attn = register_module("c_attn", make_linear(options_.n_embd, 3 * options_.n_embd, kInitialStddev, options_.bias));
  c_proj = register_module("c_proj",
                           make_linear(options_.n_embd, options_.n_embd, residual_stddev(options_), options_.bias));
}

at::Tensor CausalSelfAttentionImpl::forward(const at::Tensor& x) {
  const int64_t batch = x.size(0), time = x.size(1), width = options_.n_embd;
  const std::vector<at::Tensor> qkv = c_attn(x).split(width, 2);
  const auto heads = [&](const at::Tensor& t) {
    return t.view({batch, time, options_.n_head, width / options_.n_head}).transpose(1, 2);
  };
  const at::Tensor y = at::scaled_dot_product_attention(heads(qkv[0]), heads(qkv[1]), heads(qkv[2]), {},
                                                        is_training() ? options_.dropout : 0.0, /*is_causal=*/true);
  return dropout(c_proj(y.transpose(1, 2).reshape({batch, time, width})), options_, is_training());
}

GPTMLPImpl::GPTMLPImpl(const GPTOptions& options) : options_(options) { reset(); }

void GPTMLPImpl::reset() {
  c_fc = register_module("c_fc", make_linear(options_.n_embd, 4 * options_.n_embd, kInitialStddev, options_.bias));
  c_proj = register_module("c_proj",
                           make_linear(4 * options_.n_embd, options_.n_embd, residual_stddev(options_), options_.bias));
}

at::Tensor GPTMLPImpl::forward(const at::Tensor& x) {
  return dropout(c_proj(at::gelu(c_fc(x))), options_, is_training());
}

GPTBlockImpl::GPTBlockImpl(const GPTOptions& options) : options_(options) { reset(); }

void GPTBlockImpl::reset() {
  ln_1 = register_module("ln_1", GPTLayerNorm(options_));
  attn = register_module("attn", CausalSelfAttention(options_));
  ln_2 = register_module("ln_2", GPTLayerNorm(options_));
  mlp = register_module("mlp", GPTMLP(options_));
}

at::Tensor GPTBlockImpl::forward(at::Tensor x) {
  x = x + attn(ln_1(x));
  return x + mlp(ln_2(x));
}

GPTTransformerImpl::GPTTransformerImpl(const GPTOptions& options) : options_(options) { reset(); }

void GPTTransformerImpl::reset() {
  wte = register_module("wte", make_embedding(options_.vocab_size, options_.n_embd));
  wpe = register_module("wpe", make_embedding(options_.block_size, options_.n_embd));
  h = register_module("h", torch::nn::Sequential());
  for (int64_t layer = 0; layer < options_.n_layer; ++layer) h->push_back(GPTBlock(options_));
  ln_f = register_module("ln_f", GPTLayerNorm(options_));
}

at::Tensor GPTTransformerImpl::forward(const at::Tensor& tokens) {
  const auto places = positions.defined() ? wpe(positions) : wpe->weight.narrow(0, 0, tokens.size(1));
  at::Tensor x = wte(tokens) + places;
  x = dropout(x, options_, is_training());
  int64_t layer = 0;
  for (auto& block : *h) {
    x = run_block ? run_block(block, x, layer) : block.forward(x);
    ++layer;
  }
  return ln_f(x);
}

GPTHeadImpl::GPTHeadImpl(at::Tensor weight) : weight(std::move(weight)) { register_parameter("weight", this->weight); }

void GPTHeadImpl::reset() { weight = register_parameter("weight", at::empty_like(weight)); }

at::Tensor GPTHeadImpl::forward(const at::Tensor& x) { return at::linear(x, weight); }

GPTImpl::GPTImpl(const GPTOptions& options) : options_(options) {
  check_gpt_options(options_);
  reset();
}

void GPTImpl::reset() {
  transformer = register_module("transformer", GPTTransformer(options_));
  at::Tensor weight = transformer->wte->weight;
  if (!options_.tie_weights) {
    weight = torch::nn::init::normal_(at::empty({options_.vocab_size, options_.n_embd}), 0.0, kInitialStddev);
  }
  lm_head = register_module("lm_head", GPTHead(weight));
}

std::shared_ptr<torch::nn::Module> GPTImpl::clone(const std::optional<torch::Device>& device) const {
  auto copy = torch::nn::Cloneable<GPTImpl>::clone(device);
  auto* gpt = copy->as<GPTImpl>();
  if (options_.tie_weights) gpt->lm_head = gpt->replace_module("lm_head", GPTHead(gpt->transformer->wte->weight));
  return copy;
}

at::Tensor GPTImpl::forward(const at::Tensor& tokens) {
  TORCH_CHECK_VALUE(tokens.dim() == 2 && tokens.scalar_type() == at::kLong,
                    "[cohort] GPT: forward needs int64 tokens [batch, time], got ", tokens.scalar_type(), " ",
                    tokens.sizes());
  TORCH_CHECK_VALUE(tokens.size(1) <= options_.block_size, "[cohort] GPT: cannot read ", tokens.size(1),
                    " tokens at once: block_size is ", options_.block_size);
  return lm_head(transformer(tokens));
}

at::Tensor GPTImpl::generate(const at::Tensor& tokens, const GenerateOptions& options) {
  TORCH_CHECK_VALUE(tokens.dim() == 2 && tokens.size(1) >= 1,
                    "[cohort] GPT: generate needs a prompt [batch, time] of one token or more, got ", tokens.sizes());
  TORCH_CHECK_VALUE(options.temperature >= 0.0, "[cohort] GPT: temperature must not be negative, got ",
                    options.temperature);
  TORCH_CHECK_VALUE(!options.top_k || *options.top_k >= 1, "[cohort] GPT: top_k must be at least 1, got ",
                    *options.top_k);
  const at::NoGradGuard no_grad;
  const EvaluationMode evaluation(*this);
  at::Tensor all = tokens;
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const int64_t time = std::min(all.size(1), options_.block_size);
    const at::Tensor hidden = transformer(all.narrow(1, all.size(1) - time, time));
    all = at::cat({all, pick_next(lm_head(hidden.select(1, time - 1)), options)}, 1);
  }
  return all;
}

int64_t GPTImpl::num_parameters() const {
  const DecayGroups groups = decay_groups(parameters());
  int64_t count = 0;
  for (const auto& tensor : groups.decayed) count += tensor.numel();
  for (const auto& tensor : groups.not_decayed) count += tensor.numel();
  return count;
}

DecayGroups decay_groups(const std::vector<at::Tensor>& parameters) {
  DecayGroups groups;
  std::unordered_set<const void*> seen;
  for (const auto& parameter : parameters) {
    if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    (parameter.dim() >= 2 ? groups.decayed : groups.not_decayed).push_back(parameter);
  }
  return groups;
}

}  // namespace cohort::models
