#include "cohort/train/trainer/run_progress.h"

#include <cstdio>
#include <string>

namespace cohort::train::detail {

void RunProgress::begin_run(int64_t num_epochs) {
  if (!is_enabled_) return;
  line_.emplace(EpochLineOptions{.num_epochs = num_epochs, .world_size = world_size_});
  summary_.emplace(RunSummaryOptions{.world_size = world_size_});
}

void RunProgress::begin_epoch(int64_t epoch, int64_t num_steps, int64_t first_step) {
  if (line_) line_->begin(epoch, num_steps, first_step);
}

void RunProgress::update(int64_t step, int64_t samples, const Metrics& metrics, const StepTimes& times) {
  if (!line_) return;
  line_->update({.step = step,
                 .num_samples = samples,
                 .metrics = metrics,
                 .data_wait_share = times.share(StepPart::kData),
                 .communication_share = times.share(StepPart::kCommunication)});
}

void RunProgress::end_epoch(int64_t step, const EpochSummary& summary) {
  if (!line_) return;
  line_->end({.step = step,
              .num_samples = summary.num_samples,
              .metrics = summary.metrics,
              .data_wait_share = summary.data_wait_share,
              .communication_share = summary.communication_share});
  summary_->add(summary);
}

void RunProgress::print(std::string_view text) {
  if (!is_enabled_) return;
  if (line_) {
    line_->print(text);
  } else {
    std::fputs((std::string(text) + "\n").c_str(), stdout);
    std::fflush(stdout);
  }
}

void RunProgress::end_run() { line_.reset(); }

void RunProgress::print_summary() {
  if (!summary_) return;
  std::fputs(summary_->text().c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace cohort::train::detail
