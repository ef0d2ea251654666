/// PipelineSchedule: trains a model whose stages are on several ranks, microbatch after microbatch.
///
///     cohort::PipelineSchedule schedule("1F1B", {stage}, /*num_microbatches=*/8, {.loss_fn = cross_entropy});
///     std::vector<at::Tensor> losses;
///     // Every rank; only the first needs inputs, only the last targets.
///     schedule.step({inputs}, {.target = target, .losses = &losses});
///     optimizer.step();
///
/// What a rank does is a list of actions (cohort/pipeline/action.h), which can be printed, drawn, saved, and replaced by one of
/// your own: whatever the list says is done, if it is complete and comes to an end; others are refused before anything runs.
///
/// Names, defaults and semantics follow torch/distributed/pipelining/schedules.py. Gradients are accumulated into parameters, and
/// losses divided by the number of microbatches before backward (scale_grads), which fits losses that are means: so steps add up,
/// and whoever reduces or uses gradients early has the right ones.
///
/// Collective: step() and eval(), in the same order on all ranks of the pipeline. Thread-safety: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/optim/tensors.h"
#include "cohort/parallel/pipeline/microbatches.h"
#include "cohort/parallel/pipeline/pipeline_loss.h"
#include "cohort/parallel/pipeline/pipeline_stage.h"
#include "cohort/pipeline/action.h"

namespace cohort::amp {
class GradScaler;
}

namespace cohort {

/// The same parameter on another stage, such as an embedding and the last layer's weight. Each names the other's stage, in the
/// same order where there are several. One rank may have both stages, with one tensor or two.
struct TiedParameter {
  at::Tensor
      parameter;  ///< as an optimizer has it: a plain tensor, a DTensor, of a stage that fully_shard has taken a shard
  int stage = 0;  ///< whose parameter it is
  int other_stage = 0;  ///< which has it, too
};

struct PipelineOptions {
  /// From a microbatch's outputs of the last stage, its target and loss_kwargs. Empty: nothing is computed backward.
  PipelineLoss loss_fn = {};
  /// How inputs are cut; none: dimension 0 of each.
  std::vector<TensorChunkSpec> args_chunk_spec = {};
  /// How outputs are put together; none: dimension 0 of each.
  std::vector<MergeSpec> output_merge_spec = {};
  /// Gradients are those of the losses divided by the number of microbatches.
  bool scale_grads = true;
  /// Receives as late as can be (defer_pp_recv). Throws c10::ValueError for a list that has its communication already.
  bool defer_receives = false;
  /// Shapes may differ from step to step. False: those of the first training step, and of the first eval(), hold.
  bool dynamic_shapes = false;
  std::vector<TiedParameter> tied_parameters = {};
  /// How StepOptions::kwargs and loss_kwargs are cut; none: dimension 0 of each.
  std::vector<TensorChunkSpec> kwargs_chunk_spec = {};
  std::vector<TensorChunkSpec> loss_kwargs_chunk_spec = {};
};

struct StepOptions {
  /// On the rank with the last stage. Cut along dimension 0.
  at::Tensor target = {};
  /// There: becomes the microbatches' losses.
  std::vector<at::Tensor>* losses = nullptr;
  bool return_outputs = true;
  /// On any rank: what forward of all its stages is given after what comes from the stage before (the first one: after inputs),
  /// such as a mask. Cut as PipelineOptions::kwargs_chunk_spec says; an undefined tensor is given as it is. No gradients.
  TensorList kwargs = {};
  /// On the rank with the last stage: what the loss is given after the target. Cut as loss_kwargs_chunk_spec says. No gradients.
  TensorList loss_kwargs = {};
};

/// How steps compute gradients, where several of them, or a scale, make one step of an optimizer.
///
///     amp::GradScaler scaler({.process_group = stages});            // on every rank
///     for (int i = 0; i < 4; ++i) {
///       schedule.set_backward({.scaler = &scaler, .num_steps = 4, .synchronises = i == 3});
///       schedule.step(...);
///     }
///     scaler.step(optimizer);
///     scaler.update();
struct PipelineBackward {
  /// Backward begins with losses times its scale; those that step() gives are without. Its process_group is the pipeline's, as
  /// what is not finite on one stage leaves out the optimizers' steps on all. It must outlive the steps. Null: there is no scale.
  amp::GradScaler* scaler = nullptr;
  /// So many steps add up to one: losses are divided by it before backward.
  int64_t num_steps = 1;
  /// False: gradients stay on their rank. The next step for which it is true sums up all, over copies and shards of a stage and
  /// over tied parameters.
  bool synchronises = true;
};

enum class PipelineCsv { kComputeOnly, kComputeComms };

class COHORT_API PipelineSchedule {
 public:
  /// `name`: see pipeline_schedule_names(), in any case. `stages`: this rank's, in ascending order. Throws c10::ValueError for
  /// unknown names, and for shapes that the schedule cannot have (in Python's words), and for other stages than the schedule has
  /// here.
  PipelineSchedule(const std::string& name, std::vector<PipelineStage> stages, int num_microbatches,
                   PipelineOptions options = {});
  /// A list of your own, of all ranks. Throws c10::ValueError for one that is incomplete, or never ends, with what waits for
  /// what.
  PipelineSchedule(const pipeline::PipelineOrder& order, PipelineCsv format, std::vector<PipelineStage> stages,
                   int num_microbatches, PipelineOptions options = {});
  ~PipelineSchedule();
  PipelineSchedule(PipelineSchedule&&) noexcept;

  /// A batch forward and, with a loss, backward. `inputs`: on the rank with the first stage. Returns the outputs, merged, on the
  /// rank with the last stage; nothing elsewhere.
  ///
  /// Throws c10::Error without gradients enabled; c10::ValueError for batches, kwargs and loss_kwargs that do not fit; what a
  /// stage throws, with the action that ran; c10::DistBackendError when a rank is lost. All ranks throw; but where the job has
  /// ranks beside those of the pipeline, which compute stages together, only that rank does, at once: its process must end, for
  /// the others to be told. Afterwards the schedule refuses to go on.
  TensorList step(const TensorList& inputs = {}, const StepOptions& options = {});
  /// Of all steps that follow. Alike on all ranks. Throws c10::ValueError for less than one step.
  void set_backward(const PipelineBackward& backward);
  /// Forward only, losses included.
  TensorList eval(const TensorList& inputs = {}, const StepOptions& options = {});

  /// Of `parameters`, which this rank's stages have, and those of all other ranks: the gradients are scaled so that the norm of
  /// all of them is at most `max_norm`, as by cohort::nn::utils::clip_grad_norm_; tied ones count once. Returns the norm that
  /// they had, float64, on every rank. Collective.
  at::Tensor clip_grad_norm_(const optim::Tensors& parameters, double max_norm, double norm_type = 2.0);
  /// The mean of losses that the rank with the last stage has, float64 and without autograd, on every rank; what others give
  /// does not count. Collective. Throws where it has none, or one of several elements: c10::ValueError there, c10::Error
  /// elsewhere.
  at::Tensor mean_loss(const std::vector<at::Tensor>& losses) const;
  /// The same of what `losses` gives, which that rank alone calls. What it throws there, others throw as a c10::Error with its
  /// text.
  at::Tensor mean_loss(const std::function<std::vector<at::Tensor>()>& losses) const;

  /// All that the ranks do, communication included.
  const pipeline::PipelineOrder& order() const;
  /// The rank of each stage.
  const pipeline::StageRanks& stage_ranks() const;
  int num_microbatches() const;
  /// PipelineOptions::dynamic_shapes.
  bool has_dynamic_shapes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Python's names: get_schedule_class.
COHORT_API std::vector<std::string> pipeline_schedule_names();
/// Which stages a rank has in such a schedule, in ascending order. Throws c10::ValueError as PipelineSchedule.
COHORT_API std::vector<int> pipeline_stages_of_rank(const std::string& name, int rank, int num_ranks, int num_stages,
                                                    int num_microbatches);
/// What is computed in such a schedule, with idle steps. Throws c10::ValueError as PipelineSchedule.
COHORT_API pipeline::PipelineOrder make_pipeline_order(const std::string& name, int num_ranks, int num_stages,
                                                       int num_microbatches);
/// PyTorch's files. Throw c10::ValueError with line and column, or for a file that cannot be read or written.
COHORT_API pipeline::PipelineOrder load_pipeline_csv(const std::string& path);
COHORT_API void save_pipeline_csv(const std::string& path, const pipeline::PipelineOrder& order);
/// Steps and ranks as a table.
COHORT_API std::string pipeline_table(const pipeline::PipelineOrder& order);

/// What forward, and the two parts of backward, of one microbatch take. The first stage does both parts in the second one's
/// place, as schedules run.
struct PipelineCosts {
  double forward = 1.0;
  double backward_input = 1.0;
  double backward_weight = 1.0;
  /// By stage; absent ones: 1.
  std::vector<double> stage_factors = {};
};
struct PipelineForecast {
  double duration = 0.0;
  /// The part of all ranks' time in which they wait.
  double bubble = 0.0;
  /// Who computes what when: a line per rank, a column per forward.
  std::string text;
  std::string svg;
};
/// Of an order that is computed only. Throws c10::ValueError for one that is incomplete or never ends.
COHORT_API PipelineForecast forecast_pipeline(const pipeline::PipelineOrder& order, int num_stages,
                                              int num_microbatches, const PipelineCosts& costs = {});

}  // namespace cohort
