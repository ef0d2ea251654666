#include "cohort/train/trainer/validation_schedule.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "cohort/train/trainer/trainer_core.h"

namespace cohort::train::detail {

void ValidationSchedule::begin_epoch(std::optional<int64_t> num_batches) {
  const auto& interval = options_.val_check_interval;
  num_batches_ = num_batches;
  validated_at_.reset();
  if (!is_enabled_ || interval.is_fraction() || !num_batches) return;
  TORCH_CHECK_VALUE(interval.batches() <= *num_batches, "[cohort] Trainer: val_check_interval = ", interval.batches(),
                    " batches, but an epoch has ", *num_batches,
                    ", so there would never be a validation\n  hint: use a smaller interval, or a fraction of an "
                    "epoch; limit_val_batches = 0 turns validation off");
}

bool ValidationSchedule::is_due(const RunPosition& position, bool is_end_of_epoch) const {
  if (!is_enabled_ || validated_at_ == position.batch()) return false;
  if ((position.epoch() + 1) % options_.check_val_every_n_epoch != 0) return false;
  const auto& interval = options_.val_check_interval;
  if (interval.is_whole()) return is_end_of_epoch;
  if (is_end_of_epoch) return false;
  const int64_t every =
      interval.is_fraction() ? *limited(interval, num_batches_, "val_check_interval") : interval.batches();
  return position.batch() % std::max<int64_t>(1, every) == 0;
}

void ValidationSchedule::note(const RunPosition& position) {
  validated_at_ = position.batch();
  has_validated_ = true;
}

}  // namespace cohort::train::detail
