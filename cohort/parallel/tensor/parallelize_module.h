/// parallelize_module: lets the ranks of a tensor-parallel group compute the layers of an unmodified model together.
///
///     cohort::parallelize_module(*gpt, mesh["tp"],
///                                {{"transformer.wte", cohort::RowwiseParallel()},            // some words each
///                                 {"transformer.h.*.attn.c_attn", cohort::ColwiseParallel{.num_parts = 3, .num_heads = 12}},
///                                 {"transformer.h.*.mlp.c_fc", cohort::ColwiseParallel()},
///                                 {"transformer.h.*.*.c_proj", cohort::RowwiseParallel()},
///                                 {"lm_head", cohort::ColwiseParallel()}});                   // some logits each
///     torch::optim::AdamW optimizer(gpt->parameters());
///
/// Parameters become DTensors in place (parameters without a style become replicated ones), and so do the results computed from
/// them: the model's code stays that of one process, and sees global shapes. Names in state dicts also stay; weights may be
/// loaded before or after. The same plan runs sequence-parallel if the model's tokens are a DTensor sharded along the sequence.
///
/// Follows torch/distributed/tensor/parallel/api.py. Collective over the mesh.
#pragma once

#include <torch/nn/module.h>

#include <optional>

#include "cohort/export.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/tensor/parallel_style.h"

namespace cohort {

struct ParallelizeOptions {
  /// The rank of the mesh whose values count; if absent, each rank keeps its own.
  std::optional<int> src_rank = 0;
  /// Replaces parameters and buffers without a style by replicated DTensors. If you call the function several times on parts of
  /// one model, set it to false for all calls but the last.
  bool replicate_rest = true;
};

/// An entry of the plan that matches no module gives a warning with the nearest name. A weight that two modules share is placed
/// once, if their styles agree.
/// Throws c10::ValueError for a mesh of several axes, styles that disagree, and heads or parts that cannot be divided evenly;
/// c10::NotImplementedError for a module that the style cannot shard, or for layouts on a module that cannot have hooks. Both
/// name the module; modules before it have then been placed.
COHORT_API void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
                                   const ParallelizeOptions& options = {});

}  // namespace cohort
