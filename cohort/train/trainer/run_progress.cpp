#include "cohort/train/trainer/run_progress.h"

#include <cstdio>
#include <string>

namespace cohort::train::detail {

void RunProgress::begin(int64_t num_steps, int64_t first_step) {
  if (!is_enabled_) return;
  line_ = std::make_unique<ProgressLine>(ProgressOptions{.total_steps = num_steps, .first_step = first_step});
}

void RunProgress::update(int64_t step, int64_t samples, Metrics metrics, const StepTimes& times) {
  if (!line_) return;
  metrics.emplace_back("data", times.share(StepPart::kData));
  metrics.emplace_back("comm", times.share(StepPart::kCommunication));
  line_->update(step, samples, metrics);
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

}  // namespace cohort::train::detail
