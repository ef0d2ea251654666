#include "cohort/train/trainer/callback.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cmath>

#include "cohort/train/trainer/trainer.h"

namespace cohort::train {

Callback::~Callback() = default;

EarlyStopping::EarlyStopping(EarlyStoppingOptions options) : options_(std::move(options)) {
  TORCH_CHECK_VALUE(options_.patience >= 0 && options_.min_delta >= 0.0,
                    "[cohort] EarlyStopping: patience and min_delta are not negative, but got ", options_.patience,
                    " and ", options_.min_delta);
}

CallbackState EarlyStopping::state_dict() const {
  return {{"has_best", best_ ? 1.0 : 0.0}, {"best", best_.value_or(0.0)}, {"num_bad", static_cast<double>(num_bad_)}};
}

void EarlyStopping::load_state_dict(const CallbackState& state) {
  best_.reset();
  if (state.at("has_best") != 0.0) best_ = state.at("best");
  num_bad_ = static_cast<int64_t>(state.at("num_bad"));
}

bool EarlyStopping::is_better(double value, double than) const {
  return options_.highest_is_best ? value > than : value < than;
}

void EarlyStopping::judge(double value) {
  const auto& name = options_.monitor;
  const double least_change = options_.highest_is_best ? -options_.min_delta : options_.min_delta;
  reason_.clear();
  if (options_.check_finite && !std::isfinite(value)) {
    reason_ = fmt::format("early stopping: {} is {}", name, value);
  } else if (options_.stopping_threshold && is_better(value, *options_.stopping_threshold)) {
    reason_ = fmt::format("early stopping: {} = {} is better than {}", name, value, *options_.stopping_threshold);
  } else if (options_.divergence_threshold && is_better(*options_.divergence_threshold, value)) {
    reason_ = fmt::format("early stopping: {} = {} is worse than {}", name, value, *options_.divergence_threshold);
  } else if (!std::isnan(value) && (!best_ || is_better(value + least_change, *best_))) {
    best_ = value;
    num_bad_ = 0;
  } else if (++num_bad_ >= options_.patience) {
    reason_ = fmt::format("early stopping: {} did not get better than {} in {} evaluation{}", name,
                          best_.value_or(value), num_bad_, num_bad_ == 1 ? "" : "s");
  }
}

void EarlyStopping::on_validation_end(Trainer& trainer, const Metrics& metrics) {
  if (!is_fitting_) return;
  std::string names;
  for (const auto& [name, value] : metrics) {
    names += (names.empty() ? "\"" : ", \"") + name + "\"";
    if (name != options_.monitor) continue;
    judge(value);
    if (!reason_.empty()) trainer.stop(reason_);
    return;
  }
  TORCH_CHECK_VALUE(false, "[cohort] EarlyStopping: validation gives no \"", options_.monitor, "\", only ",
                    names.empty() ? "nothing" : names,
                    "\n  hint: monitor one of these, or give the task a metric of this name");
}

}  // namespace cohort::train
