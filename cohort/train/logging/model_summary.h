/// model_summary: a model's layers, parameters and sizes, and what a rank will need for it.
///
///     if (cohort::get_rank() == 0) std::cout << cohort::train::model_summary(*net, {.world_size = 4, .strategy = "fsdp"});
///
/// The estimate counts parameters, gradients, the optimizer's state and what the strategy holds beside them; not activations,
/// which depend on the batch, nor what allocators keep. cohort/parallel/fsdp/memory_account.h counts what is really held.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "cohort/export.h"

namespace cohort::train {

struct ModelSummaryOptions {
  /// Modules below this depth are counted with the one above them.
  int64_t max_depth = 3;
  int64_t world_size = 1;
  /// As TrainerOptions::strategy: "ddp", "data_parallel", "fsdp", "single", or "none" for the same; "auto" is "ddp" with several
  /// ranks. c10::ValueError for others.
  std::string strategy = "none";
  /// Numbers of a parameter's size that the optimizer keeps: 2 for Adam and AdamW, 1 for SGD with momentum, 0 without.
  int64_t optimizer_states = 2;
};

/// Bytes that one rank holds.
struct MemoryEstimate {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  /// Buffers of the model, and what the strategy holds: copies of gradients (ddp), the largest module gathered (fsdp).
  int64_t buffers = 0;
  int64_t strategy = 0;
  int64_t total() const { return parameters + gradients + optimizer + buffers + strategy; }
};

COHORT_API MemoryEstimate estimate_memory(const torch::nn::Module& model, const ModelSummaryOptions& options = {});
/// Lines, each ended.
COHORT_API std::string model_summary(const torch::nn::Module& model, const ModelSummaryOptions& options = {});

}  // namespace cohort::train
