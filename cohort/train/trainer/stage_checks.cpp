#include "cohort/train/trainer/stage_checks.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "cohort/parallel/ddp/replica.h"
#include "cohort/parallel/fsdp/sharded_module.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "cohort/train/trainer/run_state.h"

namespace cohort::train::detail {
namespace {

// Whether all trained parameters are in wrappers that reduce gradients.
bool is_wrapped(const torch::nn::Module& module) {
  if (dynamic_cast<const fsdp::ShardedModule*>(&module) || dynamic_cast<const ddp::Replicated*>(&module)) return true;
  const auto own = module.parameters(/*recurse=*/false);
  if (std::any_of(own.begin(), own.end(), [](const auto& parameter) { return parameter.requires_grad(); })) {
    return false;
  }
  const auto children = module.children();
  return std::all_of(children.begin(), children.end(), [](const auto& child) { return is_wrapped(*child); });
}

// Whether training takes all batches of the epoch.
bool ends_epoch(const TrainerCore& core, const BatchFeed& feed, int64_t num_batches) {
  const int64_t before = core.position().batch();
  if (num_batches < *feed.num_batches() + (shards_remaining_samples(feed) ? before : 0)) return false;
  const auto max_steps = core.options().max_steps;
  return !max_steps || (*max_steps - core.position().step()) * core.position().accumulation() >= num_batches - before;
}

// Returns the number of rows of the last batch if it is smaller than the others, else 0.
int64_t rows_left_over(const TrainerCore& core, const BatchFeed& feed) {
  const auto& options = feed.options();
  if (options.drop_last || options.batch_sampler) return 0;
  const int64_t num_rows = options.sampler ? options.sampler->size() : *feed.num_samples();
  const int64_t size = batch_size_of(feed, core.place().num_data_ranks);
  const bool is_only_one = num_rows <= size && core.position().batch() == 0;
  return is_only_one ? 0 : num_rows % size;
}

}  // namespace

void check_gradients_are_averaged(const TrainerCore& core, const torch::nn::Module& stage) {
  if (core.place().num_stages == 1 || !core.options().strategy.fsdp.mesh || is_wrapped(stage)) return;
  TORCH_CHECK_VALUE(false,
                    "[cohort] Trainer: other ranks have this stage, too, with other data, but nothing averages its "
                    "gradients with theirs\n  hint: call fully_shard(stage, {.mesh = "
                    "trainer.options().strategy.fsdp.mesh}) before its optimizer and its pipeline are made");
}

void check_can_evaluate(const ErasedTask& task) {
  TORCH_CHECK_VALUE(task.evaluate || !task.pipeline,
                    "[cohort] Trainer: a task with a pipeline needs evaluate(net, batch) to be evaluated, as step(net, "
                    "batch) runs backward, too\n  hint: use pipeline_evaluation (pipeline_step.h)");
}

void check_last_batch(const TrainerCore& core, const PipelineSchedule& pipeline, const BatchFeed& feed,
                      int64_t num_batches) {
  const bool comes = feed.num_batches() && ends_epoch(core, feed, num_batches);
  const int64_t own = comes ? rows_left_over(core, feed) : 0;
  const int64_t num_rows = core.largest({own}).front();
  if (num_rows == 0) return;
  constexpr const char* kHint = "\n  hint: set .drop_last = true (DataLoaderOptions) to leave it out";
  TORCH_CHECK_VALUE(num_rows >= pipeline.num_microbatches(), "[cohort] Trainer: the last batch of an epoch has ",
                    num_rows, " samples, which do not make ", pipeline.num_microbatches(), " microbatches", kHint);
  TORCH_CHECK_VALUE(pipeline.has_dynamic_shapes(), "[cohort] Trainer: the last batch of an epoch has ", num_rows,
                    " samples instead of ", batch_size_of(feed, core.place().num_data_ranks),
                    ", but a pipeline wants batches of one size", kHint);
}

}  // namespace cohort::train::detail
