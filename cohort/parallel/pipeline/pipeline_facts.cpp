// The facts that must be the same on all ranks of a pipeline, compared in the first step: otherwise some ranks would wait
// forever.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "cohort/comm/group/group_backend.h"
#include "cohort/parallel/pipeline/pipeline_runtime.h"
#include "cohort/parallel/pipeline/purpose.h"
#include "cohort/pipeline/csv.h"

namespace cohort::pipeline {
namespace {

std::string yes_or_no(bool value) { return value ? "set" : "not set"; }

std::string name_of_shapes(int giver) {
  return fmt::format("the data from stage {} (output_args) to stage {} (input_args)", giver, giver + 1);
}

}  // namespace

Group PipelineRuntime::group_of_ranks() const {
  return first_here().group_size() > 1 ? comm::resolve(group_) : Group();
}

comm::Facts PipelineRuntime::facts_of_shapes() const {
  comm::Facts facts;
  for (const auto& [stage, run] : stages_) {
    if (!has_given_shapes_) break;
    if (stage > 0) facts.push_back({name_of_shapes(stage - 1), text_of(metas_of(*run->stage().input_args()))});
    if (!run->stage().is_last())
      facts.push_back({name_of_shapes(stage), text_of(metas_of(*run->stage().output_args()))});
  }
  return facts;
}

// Returns a fact for each other rank, even without ties.
comm::Facts PipelineRuntime::facts_of_ties() const {
  const Group group = group_of_ranks();
  comm::Facts facts;
  for (int other = 0; other < first_here().group_size(); ++other) {
    if (other == rank_) continue;
    std::string text;
    for (const TiedParameter& tied : options_.tied_parameters) {
      if (rank_of(tied.other_stage) != other) continue;
      text += fmt::format("{}{} of stages {} and {}", text.empty() ? "" : ", ", text_of(metas_of({tied.parameter})),
                          std::min(tied.stage, tied.other_stage), std::max(tied.stage, tied.other_stage));
    }
    const int own = comm::number_in_job(group, rank_), peer = comm::number_in_job(group, other);
    facts.push_back(
        {fmt::format("the list tied_parameters of ranks {} and {}", std::min(own, peer), std::max(own, peer)),
         text.empty() ? "nothing" : text});
  }
  return facts;
}

void PipelineRuntime::agree(bool has_backward) const {
  comm::Claim claim{.function = "pipeline", .outcome = "no step was made"};
  claim.facts = {
      {"the number of stages", std::to_string(stage_ranks_.size())},
      {"the number of microbatches", std::to_string(num_microbatches_)},
      {"the checksum of the schedule's lists", fmt::format("{:x}", std::hash<std::string>()(csv_text(order_)))},
      {"loss_fn", yes_or_no(static_cast<bool>(options_.loss_fn))},
      {"scale_grads", yes_or_no(options_.scale_grads)},
      {"dynamic_shapes", yes_or_no(options_.dynamic_shapes)},
      {"PipelineStageOptions::input_args", yes_or_no(has_given_shapes_)},
      {"the first call", has_backward ? "step()" : "eval()"}};
  claim.shared_facts = facts_of_shapes();
  const auto ties = facts_of_ties();
  claim.shared_facts.insert(claim.shared_facts.end(), ties.begin(), ties.end());
  claim.hint =
      "all ranks of a pipeline need the same schedule and options; the inputs of a stage are the outputs of the stage "
      "before it; two ranks with tied parameters must name each other's stage, and the same parameters in the same "
      "order";
  const comm::CalledFor purpose(kStepAgreement);
  comm::agree(claim, {group_of_ranks()});
}

void PipelineRuntime::share(const comm::StepFailure& failure, const std::string& what) const {
  const comm::CalledFor purpose(kStepAgreement);
  failure.share("pipeline: " + what, comm::RankExchange(group_of_ranks()));
}

}  // namespace cohort::pipeline
