// The parts of pipeline_schedule.h besides the schedule itself: lists, files, drawings.
#include <c10/util/Exception.h>

#include "cohort/comm/error/throw_error.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "cohort/pipeline/action_text.h"
#include "cohort/pipeline/csv.h"
#include "cohort/pipeline/drawing.h"
#include "cohort/pipeline/schedules.h"
#include "cohort/pipeline/simulation.h"
#include "cohort/pipeline/stage_ranks.h"

namespace cohort::pipeline {

using comm::or_throw_value;

std::vector<std::string> pipeline_schedule_names() { return pipeline::schedule_names(); }

std::vector<int> pipeline_stages_of_rank(const std::string& name, int rank, int num_ranks, int num_stages,
                                         int num_microbatches) {
  const auto kind = or_throw_value(pipeline::schedule_by_name(name));
  const pipeline::PipelineShape shape{num_ranks, num_stages, num_microbatches};
  return pipeline::stages_of_rank(or_throw_value(pipeline::stage_ranks_of(kind, shape)), rank);
}

pipeline::PipelineOrder make_pipeline_order(const std::string& name, int num_ranks, int num_stages,
                                            int num_microbatches) {
  const auto kind = or_throw_value(pipeline::schedule_by_name(name));
  return or_throw_value(pipeline::plan_schedule(kind, {num_ranks, num_stages, num_microbatches}));
}

pipeline::PipelineOrder load_pipeline_csv(const std::string& path) { return or_throw_value(pipeline::load_csv(path)); }

void save_pipeline_csv(const pipeline::PipelineOrder& order, const std::string& path) {
  or_throw_value(pipeline::save_csv(path, order));
}

std::string pipeline_table(const pipeline::PipelineOrder& order) { return pipeline::order_table(order); }

PipelineForecast forecast_pipeline(const pipeline::PipelineOrder& order, int num_stages, int num_microbatches,
                                   const PipelineCosts& costs) {
  const auto format = pipeline::OrderFormat::kComputeOnly;
  const pipeline::PipelineShape shape{static_cast<int>(order.size()), num_stages, num_microbatches};
  const auto stage_ranks = or_throw_value(pipeline::validate_compute(order, shape, format));
  const pipeline::Costs as_it_runs{.forward = costs.forward,
                                   .backward_input = costs.backward_input,
                                   .backward_weight = costs.backward_weight,
                                   .stage_factors = costs.stage_factors,
                                   .is_first_stage_in_one_part = true};
  const auto timeline = or_throw_value(pipeline::simulate(order, stage_ranks, format, as_it_runs));
  const double unit = costs.forward > 0.0 ? costs.forward : 1.0;
  return {timeline.duration, timeline.bubble(), text_drawing(timeline, unit), svg_drawing(timeline)};
}

}  // namespace cohort::pipeline
