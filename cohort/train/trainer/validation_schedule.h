/// ValidationSchedule: when a fit validates (TrainerOptions::val_check_interval, check_val_every_n_epoch).
#pragma once

#include <cstdint>
#include <optional>

#include "cohort/train/run/run_position.h"
#include "cohort/train/strategy/trainer_options.h"

namespace cohort::train::detail {

class ValidationSchedule {
 public:
  /// `is_enabled`: whether there is a validation loader.
  ValidationSchedule(const TrainerOptions& options, bool is_enabled) : options_(options), is_enabled_(is_enabled) {}

  /// Begins an epoch of at most `num_batches`; absent if not known. Throws c10::ValueError if the interval is longer than that.
  void begin_epoch(std::optional<int64_t> num_batches);
  bool is_due(const RunPosition& position, bool is_end_of_epoch) const;
  void note(const RunPosition& position);
  /// Whether fit has validated.
  bool has_validated() const { return has_validated_; }

 private:
  const TrainerOptions& options_;
  const bool is_enabled_;
  std::optional<int64_t> num_batches_;
  std::optional<int64_t> validated_at_;  ///< batch of this epoch
  bool has_validated_ = false;
};

}  // namespace cohort::train::detail
