#include "cohort/train/run/run_progress.h"

#include <cstdio>
#include <string>

namespace cohort::train::detail {

void RunProgress::begin_run(std::optional<int64_t> num_epochs, bool knows_communication) {
  knows_communication_ = knows_communication;
  if (!is_enabled_) return;
  line_.emplace(EpochLineOptions{.num_epochs = num_epochs, .world_size = world_size_});
  summary_.emplace(RunSummaryOptions{.world_size = world_size_});
}

void RunProgress::begin_epoch(int64_t epoch, std::optional<int64_t> num_steps, int64_t first_step) {
  epoch_ = epoch;
  if (line_) line_->begin(epoch, num_steps, first_step);
}

void RunProgress::update(int64_t step, int64_t samples, const Metrics& metrics, const StepTimes& times) {
  if (!line_) return;
  EpochState state{
      .step = step, .num_samples = samples, .metrics = metrics, .data_wait_share = times.share(StepPart::kData)};
  if (knows_communication_) state.communication_share = times.share(StepPart::kCommunication);
  line_->update(state);
}

void RunProgress::end_epoch(int64_t step, EpochSummary summary) {
  if (!line_) return;
  if (!knows_communication_) summary.communication_share.reset();
  line_->end({.step = step,
              .num_samples = summary.num_samples,
              .metrics = summary.metrics,
              .seconds = summary.seconds,
              .data_wait_share = summary.data_wait_share,
              .communication_share = summary.communication_share});
  summary_->add(std::move(summary));
}

void RunProgress::begin_evaluation(const std::string& phase, std::optional<int64_t> num_batches) {
  if (line_) line_->pause();
  if (!is_enabled_) return;
  evaluation_.emplace(EpochLineOptions{.world_size = world_size_, .only_on_terminal = true});
  evaluation_->begin(line_ ? std::optional(epoch_) : std::nullopt, num_batches, 0, phase);
}

void RunProgress::update_evaluation(int64_t batch, int64_t samples) {
  if (evaluation_) evaluation_->update({.step = batch, .num_samples = samples * num_data_ranks_});
}

void RunProgress::end_evaluation() {
  if (evaluation_) evaluation_->end({}, /*is_kept=*/false);
  evaluation_.reset();
  if (line_) line_->resume();
}

void RunProgress::print(std::string_view text) {
  if (is_enabled_) print_anyway(text);
}

void RunProgress::print_anyway(std::string_view text) {
  if (!is_first_rank_) return;
  if (evaluation_) {
    evaluation_->print(text);
  } else if (line_) {
    line_->print(text);
  } else {
    std::fputs((std::string(text) + "\n").c_str(), stdout);
    std::fflush(stdout);
  }
}

void RunProgress::end_run() {
  evaluation_.reset();
  line_.reset();
}

void RunProgress::print_summary() {
  if (!summary_) return;
  std::fputs(summary_->text().c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace cohort::train::detail
