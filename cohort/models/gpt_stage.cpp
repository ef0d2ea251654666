#include "cohort/models/gpt_stage.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <memory>
#include <string>

#include "cohort/checkpoint/state/tied_names.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/pipeline/balance.h"

namespace cohort::models {
namespace {

void tie_names_of(const at::Tensor& weight, const GPTOptions& options) {
  if (options.tie_weights) checkpoint::tie_names(weight, {"transformer.wte.weight", "lm_head.weight"});
}

}  // namespace

GPTStageImpl::GPTStageImpl(const GPT& model, int64_t first_block, int64_t num_blocks)
    : positions(model->transformer->positions),
      run_block(model->transformer->run_block),
      options_(model->options()),
      first_block_(first_block) {
  TORCH_CHECK_VALUE(first_block >= 0 && num_blocks > 0 && first_block + num_blocks <= options_.n_layer,
                    "[cohort] GPT: a stage cannot have ", num_blocks, " blocks from number ", first_block,
                    " on: the model has n_layer ", options_.n_layer);
  const GPTTransformer& full = model->transformer;
  auto transformer = register_module("transformer", std::make_shared<torch::nn::Module>("GPTTransformer"));
  if (first_block == 0) {
    wte = transformer->register_module("wte", full->wte);
    wpe = transformer->register_module("wpe", full->wpe);
    tie_names_of(wte->weight, options_);
  }
  transformer->register_module("h", h);
  for (int64_t block = first_block; block < first_block + num_blocks; ++block) {
    h->push_back(std::to_string(block), *(full->h->begin() + block));
  }
  if (first_block + num_blocks < options_.n_layer) return;
  ln_f = transformer->register_module("ln_f", full->ln_f);
  lm_head = register_module("lm_head", model->lm_head);
  tie_names_of(lm_head->weight, options_);
}

at::Tensor GPTStageImpl::forward(at::Tensor x) {
  if (has_embeddings()) {
    TORCH_CHECK_VALUE(x.dim() == 2 && x.scalar_type() == at::kLong && x.size(1) <= options_.block_size,
                      "[cohort] GPT: the first stage needs int64 tokens [batch, time], at most ", options_.block_size,
                      " at once, got ", x.scalar_type(), " ", x.sizes());
    x = wte(x) + (positions.defined() ? wpe(positions) : wpe->weight.narrow(0, 0, x.size(1)));
    if (options_.dropout > 0.0 && is_training()) x = at::dropout(x, options_.dropout, true);
  }
  int64_t layer = first_block_;
  for (auto& block : *h) {
    x = run_block ? run_block(block, x, layer) : block.forward(x);
    ++layer;
  }
  return has_head() ? lm_head(ln_f(x)) : x;
}

std::vector<GPTStage> split_gpt(const GPT& model, const std::vector<int>& block_counts) {
  comm::or_throw_value(pipeline::check_counts(block_counts, static_cast<size_t>(model->options().n_layer)));
  std::vector<GPTStage> stages;
  int64_t next = 0;
  for (const int count : block_counts) {
    stages.emplace_back(model, next, count);
    next += count;
  }
  return stages;
}

std::vector<GPTStage> split_gpt(const GPT& model, int num_stages) {
  const GPTOptions& options = model->options();
  const auto width = static_cast<double>(options.n_embd);
  std::vector<double> costs(static_cast<size_t>(options.n_layer), 12.0 * width * width);
  costs.back() += width * static_cast<double>(options.vocab_size);
  return split_gpt(model, comm::or_throw_value(pipeline::plan_counts(costs, num_stages)));
}

}  // namespace cohort::models
