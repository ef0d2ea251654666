/// model_summary: lists a model's layers, parameters and sizes, and estimates the memory that a rank needs.
///
///     if (cohort::get_rank() == 0) std::cout << cohort::train::model_summary(*net, {.world_size = 4, .strategy = "fsdp"});
///
/// The estimate counts parameters, gradients, the optimizer's state and the strategy's copies. It does not count activations,
/// which depend on the batch, nor memory that allocators cache. cohort/parallel/fsdp/memory_account.h counts the memory in use.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "cohort/export.h"

namespace cohort::train {

struct ModelSummaryOptions {
  /// Counts modules below this depth with their parent.
  int64_t max_depth = 3;
  int64_t world_size = 1;
  /// As StrategyOptions::kind: "ddp", "data_parallel", "fsdp", "single" (or "none", the same); "auto" means "ddp" with several
  /// ranks. Other names throw c10::ValueError.
  std::string strategy = "none";
  /// Numbers that the optimizer keeps per element of a parameter: 2 for Adam and AdamW, 1 for SGD with momentum, 0 without.
  int64_t optimizer_states = 2;
};

/// Bytes that one rank needs.
struct MemoryEstimate {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  /// Buffers of the model, and memory of the strategy: copies of gradients (ddp), the largest module gathered (fsdp).
  int64_t buffers = 0;
  int64_t strategy = 0;
  int64_t total() const { return parameters + gradients + optimizer + buffers + strategy; }
};

COHORT_API MemoryEstimate estimate_memory(const torch::nn::Module& model, const ModelSummaryOptions& options = {});
/// Returns lines, each with a newline.
COHORT_API std::string model_summary(const torch::nn::Module& model, const ModelSummaryOptions& options = {});

}  // namespace cohort::train
