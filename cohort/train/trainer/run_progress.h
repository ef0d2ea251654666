/// RunProgress: what is shown of a run on rank 0.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "cohort/train/progress.h"
#include "cohort/train/trainer/step_clock.h"

namespace cohort::train::detail {

class RunProgress {
 public:
  explicit RunProgress(bool is_enabled) : is_enabled_(is_enabled) {}

  /// `num_steps`: of the whole run; 0: not known.
  void begin(int64_t num_steps, int64_t first_step);
  /// `samples`: of all ranks, since begin().
  void update(int64_t step, int64_t samples, Metrics metrics, const StepTimes& times);
  void print(std::string_view text);
  void end() { line_.reset(); }
  bool is_enabled() const { return is_enabled_; }

 private:
  bool is_enabled_;
  std::unique_ptr<ProgressLine> line_;
};

}  // namespace cohort::train::detail
