/// EpochReport: what is shown and logged of an epoch: its losses, speed, and where its time went, as far as this call of fit has
/// trained it. Evaluations are left out.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "cohort/train/logging/system_metrics.h"
#include "cohort/train/trainer/loss_meter.h"
#include "cohort/train/trainer/step_clock.h"
#include "cohort/train/trainer/trainer_core.h"

namespace cohort::train::detail {

class EpochReport {
 public:
  /// `core` must outlive this.
  explicit EpochReport(TrainerCore& core);

  /// `num_batches`: of the epoch, at most; absent: not known.
  void begin(std::optional<int64_t> num_batches);
  /// After each step of the optimizer: logs and shows the means of its losses over all ranks, if they are due. Collective.
  void after_step(const LossMeter& losses);
  /// What `work` does is no training: it counts neither in the epoch's time nor in its shares.
  template <class Work>
  void leave_out(const Work& work);
  /// The epoch ends, or fit does within it: means over all ranks. `has_validated`: now. Collective.
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
