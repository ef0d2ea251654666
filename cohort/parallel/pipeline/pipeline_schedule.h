/// PipelineSchedule: trains a model whose stages are on several ranks, microbatch after microbatch.
///
///     cohort::PipelineSchedule schedule("1F1B", {stage}, /*num_microbatches=*/8, {.loss_fn = cohort::loss_of(cross_entropy)});
///     std::vector<at::Tensor> losses;
///     // Every rank; only the first needs inputs, only the last targets.
///     schedule.step({inputs}, {.target = target, .losses = &losses});
///     optimizer.step();
///
/// A rank's work is a list of actions (cohort/pipeline/action.h), which can be printed, drawn, saved, and replaced by a list of
/// your own. Any list that is complete and ends can run; others throw before anything runs.
///
/// Names, defaults and semantics follow torch/distributed/pipelining/schedules.py. Gradients are accumulated into parameters, and
/// losses are divided by the number of microbatches before backward (scale_grads), which fits losses that are means: so gradients
/// of several steps accumulate, and code that reduces or uses gradients early gets correct ones.
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

/// A parameter that two stages share, such as an embedding and the last layer's weight. Each stage names the other, in the same
/// order if there are several. One rank may have both stages, with one tensor or two.
struct TiedParameter {
  at::Tensor
      parameter;  ///< as an optimizer has it: a plain tensor, a DTensor, or the shard if fully_shard has sharded the stage
  int stage = 0;        ///< the stage that has this parameter
  int other_stage = 0;  ///< the stage that has it, too
};

struct PipelineOptions {
  /// Computes the loss from a microbatch's outputs of the last stage, its target and loss_kwargs. If empty, steps run without
  /// backward.
  PipelineLoss loss_fn = {};
  /// How inputs are split; if empty, along dimension 0 of each.
  std::vector<TensorChunkSpec> args_chunk_spec = {};
  /// How outputs are merged; if empty, along dimension 0 of each.
  std::vector<MergeSpec> output_merge_spec = {};
  /// Divides the losses by the number of microbatches before backward.
  bool scale_grads = true;
  /// Receives as late as possible (defer_pp_recv). Throws c10::ValueError for a list that already has its communication.
  bool defer_receives = false;
  /// Allows shapes to differ from step to step. If false, the shapes of the first training step, and of the first eval(), must
  /// stay.
  bool dynamic_shapes = false;
  std::vector<TiedParameter> tied_parameters = {};
  /// How StepOptions::kwargs and loss_kwargs are split; if empty, along dimension 0 of each.
  std::vector<TensorChunkSpec> kwargs_chunk_spec = {};
  std::vector<TensorChunkSpec> loss_kwargs_chunk_spec = {};
};

struct StepOptions {
  /// The target, on the rank with the last stage. Split along dimension 0.
  at::Tensor target = {};
  /// On the same rank: receives the microbatches' losses.
  std::vector<at::Tensor>* losses = nullptr;
  bool return_outputs = true;
  /// On any rank: further arguments of forward of all its stages, after the tensors from the stage before (on the first stage,
  /// after inputs), such as a mask. Split according to PipelineOptions::kwargs_chunk_spec; an undefined tensor is passed as it
  /// is. They get no gradients.
  TensorList kwargs = {};
  /// On the rank with the last stage: further arguments of the loss, after the target. Split according to loss_kwargs_chunk_spec.
  /// They get no gradients.
  TensorList loss_kwargs = {};
};

/// How steps compute gradients, if several of them, or a gradient scale, belong to one step of an optimizer.
///
///     amp::GradScaler scaler({.process_group = stages});            // on every rank
///     for (int i = 0; i < 4; ++i) {
///       schedule.set_backward({.scaler = &scaler, .num_steps = 4, .requires_gradient_sync = i == 3});
///       schedule.step({inputs}, {.target = target});
///     }
///     scaler.step(optimizer);
///     scaler.update();
struct PipelineBackward {
  /// Multiplies losses by its scale before backward; the losses that step() returns are unscaled. Its process_group must be the
  /// pipeline's, so that a gradient on one stage that is not finite skips the optimizers' steps on all. It must outlive the
  /// steps. If null, losses are not scaled.
  amp::GradScaler* scaler = nullptr;
  /// The number of steps whose gradients are accumulated: losses are divided by it before backward.
  int64_t num_steps = 1;
  /// If false, gradients stay on their rank. The next step with true reduces the accumulated gradients, over replicas and shards
  /// of a stage and over tied parameters.
  bool requires_gradient_sync = true;
};

enum class PipelineCsv { kComputeOnly, kComputeComms };

class COHORT_API PipelineSchedule {
 public:
  /// `name`: see pipeline_schedule_names(), in upper or lower case. `stages`: this rank's, in ascending order. Throws
  /// c10::ValueError for unknown names, for shapes that the schedule does not support (with Python's texts), and for other stages
  /// than the schedule has on this rank.
  PipelineSchedule(const std::string& name, std::vector<PipelineStage> stages, int num_microbatches,
                   PipelineOptions options = {});
  /// Takes a list of your own, for all ranks. Throws c10::ValueError if it is incomplete, or never ends, with the actions that
  /// wait for each other.
  PipelineSchedule(const pipeline::PipelineOrder& order, PipelineCsv format, std::vector<PipelineStage> stages,
                   int num_microbatches, PipelineOptions options = {});
  ~PipelineSchedule();
  PipelineSchedule(PipelineSchedule&&) noexcept;

  /// Runs a batch forward and, with a loss, backward. `inputs`: on the rank with the first stage. Returns the merged outputs on
  /// the rank with the last stage; an empty list elsewhere.
  ///
  /// Throws c10::Error if gradients are disabled; c10::ValueError for batches, kwargs and loss_kwargs that do not fit; what a
  /// stage throws, with the action that ran; c10::DistBackendError if a rank is lost. All ranks throw. But if the job has ranks
  /// besides those of the pipeline, which compute stages together, only the failed rank throws, at once: its process must end, so
  /// that the others notice. After an error the schedule cannot be used any more.
  TensorList step(const TensorList& inputs = {}, const StepOptions& options = {});
  /// Sets it for all following steps. Must be the same on all ranks. Throws c10::ValueError for less than one step.
  void set_backward(const PipelineBackward& backward);
  /// Runs forward only, losses included.
  TensorList eval(const TensorList& inputs = {}, const StepOptions& options = {});

  /// Scales the gradients of `parameters`, which this rank's stages have, and of those of all other ranks, so that their common
  /// norm is at most `max_norm`, as cohort::nn::utils::clip_grad_norm_ does; tied ones count once. Returns the norm before
  /// scaling, float64, on every rank. Collective.
  at::Tensor clip_grad_norm_(const optim::Tensors& parameters, double max_norm, double norm_type = 2.0);
  /// Returns the mean of the losses on the rank with the last stage, float64 and without autograd, on every rank; arguments of
  /// other ranks do not count. Collective. If that rank has no losses, or one with several elements, throws c10::ValueError there
  /// and c10::Error elsewhere.
  at::Tensor mean_loss(const std::vector<at::Tensor>& losses) const;
  /// The same for the losses that `losses` returns; only that rank calls it. If it throws there, others throw a c10::Error with
  /// its text.
  at::Tensor mean_loss(const std::function<std::vector<at::Tensor>()>& losses) const;

  /// The actions of all ranks, communication included.
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

}  // namespace cohort

namespace cohort::pipeline {

/// Returns Python's names: get_schedule_class.
COHORT_API std::vector<std::string> pipeline_schedule_names();
/// Returns the stages of a rank in such a schedule, in ascending order. Throws c10::ValueError as PipelineSchedule.
COHORT_API std::vector<int> pipeline_stages_of_rank(const std::string& name, int rank, int num_ranks, int num_stages,
                                                    int num_microbatches);
/// Returns the computations of such a schedule, with idle steps. Throws c10::ValueError as PipelineSchedule.
COHORT_API pipeline::PipelineOrder make_pipeline_order(const std::string& name, int num_ranks, int num_stages,
                                                       int num_microbatches);
/// Read and write PyTorch's files. Throw c10::ValueError with line and column, or for a file that cannot be read or written.
COHORT_API pipeline::PipelineOrder load_pipeline_csv(const std::string& path);
COHORT_API void save_pipeline_csv(const pipeline::PipelineOrder& order, const std::string& path);
[[deprecated("use save_pipeline_csv(order, path)")]] inline void save_pipeline_csv(
    const std::string& path, const pipeline::PipelineOrder& order) {
  save_pipeline_csv(order, path);
}
/// Returns steps and ranks as a table.
COHORT_API std::string pipeline_table(const pipeline::PipelineOrder& order);

/// The costs of one microbatch: of forward, and of the two parts of backward. The first stage does both parts together, in the
/// place of the second, as schedules run.
struct PipelineCosts {
  double forward = 1.0;
  double backward_input = 1.0;
  double backward_weight = 1.0;
  /// Factors by stage; missing ones are 1.
  std::vector<double> stage_factors = {};
};
struct PipelineForecast {
  double duration = 0.0;
  /// The fraction of all ranks' time in which they wait.
  double bubble = 0.0;
  /// Which rank computes what when: a line per rank, a column per forward.
  std::string text;
  std::string svg;
};
/// Forecasts the time of an order of computations. Throws c10::ValueError if it is incomplete or never ends.
COHORT_API PipelineForecast forecast_pipeline(const pipeline::PipelineOrder& order, int num_stages,
                                              int num_microbatches, const PipelineCosts& costs = {});

}  // namespace cohort::pipeline

// Old names, until the next release.
namespace cohort {
using pipeline::load_pipeline_csv;
using pipeline::make_pipeline_order;
using pipeline::pipeline_schedule_names;
using pipeline::pipeline_stages_of_rank;
using pipeline::pipeline_table;
using pipeline::save_pipeline_csv;
using PipelineCosts [[deprecated("use cohort::pipeline::PipelineCosts")]] = pipeline::PipelineCosts;
using PipelineForecast [[deprecated("use cohort::pipeline::PipelineForecast")]] = pipeline::PipelineForecast;
using pipeline::forecast_pipeline;
}  // namespace cohort
