/// GPTStage: a part of a GPT on one rank of a pipeline: some blocks, before the first ones the embeddings, behind the last ones
/// the norm and the head.
///
///     auto stages = cohort::models::split_gpt(model, num_stages);
///     cohort::PipelineStage stage(stages[rank], rank, num_stages);
///
/// Parts share parameters with the model and have its names: the state dicts of all parts together are the model's. Of tied
/// weights, the first stage and the last one have one each (PipelineOptions::tied_parameters), and what is loaded may have them
/// under the name of either (checkpoint/state/tied_names.h).
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "cohort/export.h"
#include "cohort/models/gpt.h"

namespace cohort::models {

class COHORT_API GPTStageImpl : public torch::nn::Module {
 public:
  /// Throws c10::ValueError for blocks that the model does not have, and for none.
  GPTStageImpl(const GPT& model, int64_t first_block, int64_t num_blocks);

  /// Of the first stage: int64 tokens [batch, time]; of others [batch, time, width]. Returns the same for the next stage; of the
  /// last one logits [batch, time, vocab_size].
  at::Tensor forward(at::Tensor x);

  bool has_embeddings() const { return !wte.is_empty(); }
  bool has_head() const { return !lm_head.is_empty(); }

  /// Empty where the stage does not have them.
  torch::nn::Embedding wte{nullptr}, wpe{nullptr};
  /// Of GPTBlock, under their numbers in the model. Wrappers of them may stand in their places.
  torch::nn::Sequential h;
  GPTLayerNorm ln_f{nullptr};
  GPTHead lm_head{nullptr};

  /// Of the first stage: as GPTTransformer::positions. At first the model's.
  at::Tensor positions;
  /// How forward runs block number `layer` of the model, such as under a checkpoint; empty: block.forward(x). At first the
  /// model's.
  std::function<at::Tensor(torch::nn::AnyModule& block, const at::Tensor& x, int64_t layer)> run_block;

 private:
  GPTOptions options_;
  int64_t first_block_;
};
TORCH_MODULE(GPTStage);

/// A stage for each number of blocks. Throws c10::ValueError unless they are positive and share out all blocks.
COHORT_API std::vector<GPTStage> split_gpt(const GPT& model, const std::vector<int>& block_counts);
/// So that stages take about as long as each other: the head counts as much as blocks with as many parameters.
COHORT_API std::vector<GPTStage> split_gpt(const GPT& model, int num_stages);

}  // namespace cohort::models
