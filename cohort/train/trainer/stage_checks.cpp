#include "cohort/train/trainer/stage_checks.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "cohort/parallel/ddp/replica.h"
#include "cohort/parallel/fsdp/sharded_module.h"

namespace cohort::train::detail {
namespace {

// What is trained of the module is in wrappers that sum up gradients.
bool is_wrapped(const torch::nn::Module& module) {
  if (dynamic_cast<const fsdp::ShardedModule*>(&module) || dynamic_cast<const ddp::Replicated*>(&module)) return true;
  const auto own = module.parameters(/*recurse=*/false);
  if (std::any_of(own.begin(), own.end(), [](const auto& parameter) { return parameter.requires_grad(); })) {
    return false;
  }
  const auto children = module.children();
  return std::all_of(children.begin(), children.end(), [](const auto& child) { return is_wrapped(*child); });
}

}  // namespace

void check_gradients_are_averaged(const TrainerCore& core, const torch::nn::Module& stage) {
  if (core.place.num_stages == 1 || !core.options.fsdp.mesh || is_wrapped(stage)) return;
  TORCH_CHECK_VALUE(false,
                    "[cohort] Trainer: other ranks have this stage, too, with other data, but nothing averages its "
                    "gradients with theirs\n  hint: fully_shard(stage, {.mesh = trainer.options().fsdp.mesh}), before "
                    "its optimizer and its pipeline are made");
}

}  // namespace cohort::train::detail
