#include "cohort/parallel/pipeline/pipeline_schedule.h"

#include <c10/util/Exception.h>

#include <utility>

#include "cohort/comm/error/throw_error.h"
#include "cohort/parallel/pipeline/pipeline_runtime.h"
#include "cohort/pipeline/lowering.h"
#include "cohort/pipeline/schedules.h"
#include "cohort/pipeline/simulation.h"

namespace cohort {

struct PipelineSchedule::State {
  pipeline::PipelineRuntime runtime;
  bool has_loss = false;
};

namespace pipeline::detail {

void throw_wrong_loss_kwargs(size_t expected, size_t actual) {
  C10_THROW_ERROR(ValueError,
                  c10::str("[cohort] pipeline: loss_fn takes ", expected, expected == 1 ? " tensor" : " tensors",
                           " besides outputs and target, but StepOptions::loss_kwargs has ", actual));
}

}  // namespace pipeline::detail

namespace {

pipeline::PipelineShape shape_of_stages(const std::vector<PipelineStage>& stages, int num_microbatches) {
  TORCH_CHECK_VALUE(!stages.empty(), "[cohort] pipeline: a rank needs at least one stage");
  const PipelineStage& first = stages.front();
  for (const PipelineStage& stage : stages) {
    TORCH_CHECK_VALUE(
        stage.num_stages() == first.num_stages() && stage.group() == first.group(),
        "[cohort] pipeline: all stages of a schedule must belong to one pipeline, with the same num_stages and group");
  }
  return {first.group_size(), first.num_stages(), num_microbatches};
}

// A list that is complete and ends.
struct FullOrder {
  pipeline::PipelineOrder order;
  pipeline::StageRanks stage_ranks;
};

FullOrder complete(const pipeline::PipelineOrder& order, pipeline::OrderFormat format,
                   const pipeline::PipelineShape& shape, bool defers) {
  using namespace pipeline;
  TORCH_CHECK_VALUE(!defers || format == OrderFormat::kComputeOnly,
                    "[cohort] pipeline: defer_receives is for lists to which the schedule adds communication, but a "
                    "list of format kComputeComms has its own");
  FullOrder full{order, comm::or_throw_value(validate_compute(order, shape, format))};
  if (format == OrderFormat::kComputeOnly) {
    comm::or_throw_value(simulate(order, full.stage_ranks, format));
    full.order = comm::or_throw_value(add_communication(order, full.stage_ranks, shape.num_microbatches));
    if (defers) full.order = comm::or_throw_value(defer_receives(full.order, full.stage_ranks));
  }
  comm::or_throw_value(validate_communication(full.order, full.stage_ranks));
  comm::or_throw_value(simulate(full.order, full.stage_ranks, OrderFormat::kComputeComms));
  return full;
}

FullOrder planned(const std::string& name, const pipeline::PipelineShape& shape, bool defers) {
  const auto kind = comm::or_throw_value(pipeline::schedule_by_name(name));
  return complete(comm::or_throw_value(pipeline::plan_schedule(kind, shape)), pipeline::OrderFormat::kComputeOnly,
                  shape, defers);
}

}  // namespace

PipelineSchedule::PipelineSchedule(const std::string& name, std::vector<PipelineStage> stages, int num_microbatches,
                                   PipelineOptions options) {
  FullOrder full = planned(name, shape_of_stages(stages, num_microbatches), options.defer_receives);
  const bool has_loss = static_cast<bool>(options.loss_fn);
  state_ = std::make_unique<State>(State{
      {std::move(full.order), std::move(full.stage_ranks), stages, num_microbatches, std::move(options)}, has_loss});
}

PipelineSchedule::PipelineSchedule(const pipeline::PipelineOrder& order, PipelineCsv format,
                                   std::vector<PipelineStage> stages, int num_microbatches, PipelineOptions options) {
  const bool is_computed_only = format == PipelineCsv::kComputeOnly;
  FullOrder full =
      complete(order, is_computed_only ? pipeline::OrderFormat::kComputeOnly : pipeline::OrderFormat::kComputeComms,
               shape_of_stages(stages, num_microbatches), options.defer_receives);
  const bool has_loss = static_cast<bool>(options.loss_fn);
  state_ = std::make_unique<State>(State{
      {std::move(full.order), std::move(full.stage_ranks), stages, num_microbatches, std::move(options)}, has_loss});
}

PipelineSchedule::~PipelineSchedule() = default;
PipelineSchedule::PipelineSchedule(PipelineSchedule&&) noexcept = default;

TensorList PipelineSchedule::step(const TensorList& inputs, const StepOptions& options) {
  return state_->runtime.run(inputs, options, state_->has_loss);
}

TensorList PipelineSchedule::eval(const TensorList& inputs, const StepOptions& options) {
  return state_->runtime.run(inputs, options, /*has_backward=*/false);
}

at::Tensor PipelineSchedule::clip_grad_norm_(const optim::Tensors& parameters, double max_norm, double norm_type) {
  return state_->runtime.clip_grad_norm_(parameters.list(), max_norm, norm_type);
}

at::Tensor PipelineSchedule::mean_loss(const std::vector<at::Tensor>& losses) const {
  return state_->runtime.mean_loss(losses);
}

at::Tensor PipelineSchedule::mean_loss(const std::function<std::vector<at::Tensor>()>& losses) const {
  return state_->runtime.mean_loss(losses);
}

void PipelineSchedule::set_backward(const PipelineBackward& backward) {
  TORCH_CHECK_VALUE(backward.num_steps >= 1, "[cohort] pipeline: num_steps is ", backward.num_steps,
                    ", but it must be at least 1");
  state_->runtime.set_backward(backward);
}

const pipeline::PipelineOrder& PipelineSchedule::order() const { return state_->runtime.order(); }
const pipeline::StageRanks& PipelineSchedule::stage_ranks() const { return state_->runtime.stage_ranks(); }
int PipelineSchedule::num_microbatches() const { return state_->runtime.num_microbatches(); }
bool PipelineSchedule::has_dynamic_shapes() const { return state_->runtime.has_dynamic_shapes(); }

}  // namespace cohort
