#include "cohort/train/logging/run_summary.h"

#include <utility>

#include "cohort/report/progress/summary_text.h"

namespace cohort::train {

RunSummary::RunSummary(RunSummaryOptions options) : options_(std::move(options)) {}

void RunSummary::add(EpochSummary epoch) { epochs_.push_back(std::move(epoch)); }

std::string RunSummary::text() const {
  std::vector<report::EpochResult> results;
  for (const EpochSummary& epoch : epochs_) {
    results.push_back({.epoch = epoch.epoch,
                       .seconds = epoch.seconds,
                       .num_samples = epoch.num_samples,
                       .metrics = epoch.metrics,
                       .data_wait_share = epoch.data_wait_share,
                       .communication_share = epoch.communication_share,
                       .cpu_share = epoch.cpu_share});
  }
  return report::summary_text(results, {.world_size = options_.world_size,
                                        .unit = options_.unit,
                                        .low_data = options_.low_data,
                                        .low_communication = options_.low_communication});
}

}  // namespace cohort::train
