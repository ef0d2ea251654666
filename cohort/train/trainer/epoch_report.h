/// EpochReport: shows and logs an epoch: its losses, its speed, and where its time went, as far as this call of fit has trained
/// it. Evaluations do not count.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "cohort/train/logging/system_metrics.h"
#include "cohort/train/run/loss_meter.h"
#include "cohort/train/run/step_clock.h"
#include "cohort/train/trainer/trainer_core.h"

namespace cohort::train::detail {

class EpochReport {
 public:
  /// `core` must outlive this.
  explicit EpochReport(TrainerCore& core);

  /// `num_batches`: an upper bound for the epoch. If absent, no bound is known.
  void begin(std::optional<int64_t> num_batches);
  /// Call it after each step of the optimizer. Logs and shows the means of the step's losses over all ranks, if they are due.
  /// Collective.
  void after_step(const LossMeter& losses);
  /// Runs `work` without counting its time, neither in the epoch's time nor in the shares of its parts.
  template <class Work>
  void leave_out(const Work& work);
  /// Ends the report, at the end of the epoch or of fit, with means over all ranks. `has_validated`: just now. Collective.
  void end(const LossMeter& losses, bool is_whole, bool has_validated);

 private:
  TrainerCore& core_;
  SystemMetrics system_;
  std::chrono::steady_clock::time_point began_at_;
  int64_t samples_before_ = 0;
  StepTimes times_before_;
};

template <class Work>
void EpochReport::leave_out(const Work& work) {
  auto& clock = core_.clock();
  clock.lap(StepPart::kOther);
  const auto before = clock.times()[StepPart::kOther];
  work();
  clock.lap(StepPart::kOther);
  const auto passed = clock.times()[StepPart::kOther] - before;
  began_at_ += passed;
  times_before_[StepPart::kOther] += passed;
}

}  // namespace cohort::train::detail
