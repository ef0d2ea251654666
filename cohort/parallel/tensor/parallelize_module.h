/// parallelize_module: an unmodified model whose layers the ranks of a tensor-parallel group compute together.
///
///     cohort::parallelize_module(*gpt, mesh["tp"],
///                                {{"transformer.wte", cohort::RowwiseParallel()},            // some words each
///                                 {"transformer.h.*.attn.c_attn", cohort::ColwiseParallel{.num_parts = 3, .num_heads = 12}},
///                                 {"transformer.h.*.mlp.c_fc", cohort::ColwiseParallel()},
///                                 {"transformer.h.*.*.c_proj", cohort::RowwiseParallel()},
///                                 {"lm_head", cohort::ColwiseParallel()}});                   // some logits each
///     torch::optim::AdamW optimizer(gpt->parameters());
///
/// Parameters become DTensors in place, those that no style places replicated ones, and so does what is calculated with them: the
/// model's code stays that of one process, and sees whole sizes. Names in state dicts stay as well; weights may be loaded before
/// or afterwards. The same plan runs sequence-parallel if the model is given tokens that are a DTensor cut along the sequence.
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
  /// Whose values count, by the rank in the mesh; nothing: each rank keeps its own.
  std::optional<int> src_rank = 0;
  /// Parameters and buffers that no style has placed become replicated DTensors. Say false for all but the last of several calls
  /// on parts of one model.
  bool replicate_rest = true;
};

/// An entry of the plan that matches no module is a warning with the nearest name. A weight that two modules share is placed
/// once, if their styles agree.
/// Throws c10::ValueError for a mesh of several axes, styles that disagree, heads or parts that do not divide;
/// c10::NotImplementedError for a module that the style cannot share out, or layouts where nothing can stand at a module's
/// border. Both name the module. Modules before it have been placed then.
COHORT_API void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
                                   const ParallelizeOptions& options = {});

}  // namespace cohort
