/// GPTStage: a stage of a GPT on one rank of a pipeline: some blocks; the first stage has also the embeddings, the last one the
/// norm and the head.
///
///     auto stages = cohort::models::split_gpt(model, num_stages);
///     cohort::PipelineStage stage(stages[rank], rank, num_stages);
///
/// Stages share parameters with the model and have its names: the state dicts of all stages together are the model's. The first
/// and the last stage have a copy each of tied weights (PipelineOptions::tied_parameters), and a loaded state may have them under
/// either name (checkpoint/state/tied_names.h).
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
  /// Throws c10::ValueError for blocks that the model does not have, and for 0 blocks.
  GPTStageImpl(const GPT& model, int64_t first_block, int64_t num_blocks);

  /// Takes int64 tokens [batch, time] in the first stage, and [batch, time, width] in others. Returns the input of the next
  /// stage; in the last one logits [batch, time, vocab_size].
  at::Tensor forward(at::Tensor x);

  bool has_embeddings() const { return !wte.is_empty(); }
  bool has_head() const { return !lm_head.is_empty(); }

  /// Empty if the stage does not have them.
  torch::nn::Embedding wte{nullptr}, wpe{nullptr};
  /// Holds GPTBlocks under their numbers in the model, or wrappers of them.
  torch::nn::Sequential h;
  GPTLayerNorm ln_f{nullptr};
  GPTHead lm_head{nullptr};

  /// As GPTTransformer::positions, for the first stage. Initially the model's.
  at::Tensor positions;
  /// Runs block number `layer` of the model in forward, such as under a checkpoint. If empty, forward calls block.forward(x).
  /// Initially the model's.
  std::function<at::Tensor(torch::nn::AnyModule& block, const at::Tensor& x, int64_t layer)> run_block;

 private:
  GPTOptions options_;
  int64_t first_block_;
};
TORCH_MODULE(GPTStage);

/// Returns a stage for each number of blocks. Throws c10::ValueError unless these are positive and their sum is the number of
/// blocks.
COHORT_API std::vector<GPTStage> split_gpt(const GPT& model, const std::vector<int>& block_counts);
/// Balances the stages' times: the head counts like blocks with as many parameters.
COHORT_API std::vector<GPTStage> split_gpt(const GPT& model, int num_stages);

}  // namespace cohort::models
