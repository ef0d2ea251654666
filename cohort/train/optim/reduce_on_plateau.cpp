#include "cohort/train/optim/reduce_on_plateau.h"

#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <limits>

#include "cohort/train/optim/scheduler_field.h"

namespace cohort::optim {

ReduceLROnPlateau::ReduceLROnPlateau(torch::optim::Optimizer& optimizer, const PlateauOptions& options)
    : LRScheduler("ReduceLROnPlateau", optimizer),
      options_(options),
      min_lrs_(options.min_lr.of_groups("min_lr", num_groups())),
      best_(worst()) {
  TORCH_CHECK_VALUE(options.factor < 1, "Factor should be < 1.0.");
  last_epoch_ = 0;
}

double ReduceLROnPlateau::worst() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return options_.mode == PlateauMode::kMin ? kInfinity : -kInfinity;
}

bool ReduceLROnPlateau::is_better(double metric) const {
  const bool is_relative = options_.threshold_mode == ThresholdMode::kRel;
  if (options_.mode == PlateauMode::kMin) {
    return metric < (is_relative ? best_ * (1.0 - options_.threshold) : best_ - options_.threshold);
  }
  return metric > (is_relative ? best_ * (options_.threshold + 1.0) : best_ + options_.threshold);
}

void ReduceLROnPlateau::step() {
  TORCH_CHECK_TYPE(false, "[cohort] ReduceLROnPlateau::step needs the metric: step(validation_loss)");
}

void ReduceLROnPlateau::step(double metric) {
  ++last_epoch_;
  if (is_better(metric)) {
    best_ = metric;
    num_bad_epochs_ = 0;
  } else {
    ++num_bad_epochs_;
  }
  if (cooldown_counter_ > 0) {
    --cooldown_counter_;
    num_bad_epochs_ = 0;
  }
  if (num_bad_epochs_ > options_.patience) {
    reduce();
    cooldown_counter_ = options_.cooldown;
    num_bad_epochs_ = 0;
  }
  last_lr_ = current_rates();
}

void ReduceLROnPlateau::reduce() {
  // Groups that were added later get the minimum of all groups.
  if (min_lrs_.size() != num_groups() && options_.min_lr.is_one()) {
    min_lrs_ = options_.min_lr.of_groups("min_lr", num_groups());
  }
  Rates rates = current_rates();
  TORCH_CHECK_VALUE(min_lrs_.size() == rates.size(), "[cohort] ReduceLROnPlateau::step: min_lr is of ", min_lrs_.size(),
                    " parameter groups, but the optimizer has ", rates.size(),
                    "\n  hint: construct schedulers after the last add_param_group()");
  for (size_t i = 0; i < rates.size(); ++i) {
    const double lower = std::max(rates[i] * options_.factor, min_lrs_[i]);
    if (rates[i] - lower > options_.eps) rates[i] = lower;
  }
  set_rates(rates);
}

LRScheduler::Fields ReduceLROnPlateau::fields() {
  const auto default_min_lr =
      options_.min_lr.is_one() ? c10::IValue(options_.min_lr.of_groups("", 1)[0]) : c10::IValue();
  return {number_field("factor", options_.factor),
          constant_field("default_min_lr", default_min_lr),
          numbers_field("min_lrs", min_lrs_, num_groups()),
          number_field("patience", options_.patience),
          number_field("cooldown", options_.cooldown),
          number_field("eps", options_.eps),
          number_field("last_epoch", last_epoch_),
          numbers_field("_last_lr", last_lr_, num_groups()),
          constant_field("mode_worse", worst()),
          word_field("mode", options_.mode, {"min", "max"}),
          number_field("threshold", options_.threshold),
          word_field("threshold_mode", options_.threshold_mode, {"rel", "abs"}),
          number_field("best", best_),
          number_field("cooldown_counter", cooldown_counter_),
          number_field("num_bad_epochs", num_bad_epochs_)};
}

}  // namespace cohort::optim
