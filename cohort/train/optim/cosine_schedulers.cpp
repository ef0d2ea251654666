#include "cohort/train/optim/cosine_schedulers.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <numbers>

#include "cohort/train/optim/scheduler_field.h"

namespace cohort::optim {
namespace {

using std::numbers::pi;

}  // namespace

CosineAnnealingLR::CosineAnnealingLR(torch::optim::Optimizer& optimizer, int64_t t_max, double eta_min)
    : LRScheduler("CosineAnnealingLR", optimizer), t_max_(t_max), eta_min_(eta_min) {
  TORCH_CHECK_VALUE(t_max > 0, "[cohort] CosineAnnealingLR: t_max must be at least 1, not ", t_max);
  start();
}

LRScheduler::Rates CosineAnnealingLR::rates() {
  Rates rates = current_rates();
  if (is_initial_) return rates;
  const auto length = static_cast<double>(t_max_);
  const bool leaves_minimum = (last_epoch_ - 1 - t_max_) % (2 * t_max_) == 0;
  const double ratio = (1 + std::cos(pi * static_cast<double>(last_epoch_) / length)) /
                       (1 + std::cos(pi * static_cast<double>(last_epoch_ - 1) / length));
  for (size_t i = 0; i < rates.size(); ++i) {
    if (leaves_minimum) {
      rates[i] += (base_lrs_.at(i) - eta_min_) * (1 - std::cos(pi / length)) / 2;
    } else {
      rates[i] = ratio * (rates[i] - eta_min_) + eta_min_;
    }
  }
  return rates;
}

LRScheduler::Rates CosineAnnealingLR::rates_of_restart() {
  const double height = 1 + std::cos(pi * static_cast<double>(last_epoch_) / static_cast<double>(t_max_));
  Rates rates = base_lrs_;
  for (double& rate : rates) rate = eta_min_ + (rate - eta_min_) * height / 2;
  return rates;
}

LRScheduler::Fields CosineAnnealingLR::settings() {
  return {count_field("T_max", t_max_, 1), number_field("eta_min", eta_min_)};
}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(torch::optim::Optimizer& optimizer, int64_t t_0,
                                                         int64_t t_mult, double eta_min)
    : LRScheduler("CosineAnnealingWarmRestarts", optimizer),
      t_0_(t_0),
      t_mult_(t_mult),
      eta_min_(eta_min),
      t_i_(static_cast<double>(t_0)) {
  TORCH_CHECK_VALUE(t_0 > 0, "Expected positive integer T_0, but got ", t_0);
  TORCH_CHECK_VALUE(t_mult >= 1, "Expected integer T_mult >= 1, but got ", t_mult);
  start();
}

LRScheduler::Rates CosineAnnealingWarmRestarts::rates() {
  const double height = 1 + std::cos(pi * t_cur_ / t_i_);
  Rates rates = base_lrs_;
  for (double& rate : rates) rate = eta_min_ + (rate - eta_min_) * height / 2;
  return rates;
}

void CosineAnnealingWarmRestarts::step() {
  if (last_epoch_ < 0) return step(0.0);
  t_cur_ += 1;
  if (t_cur_ >= t_i_) {
    t_cur_ = std::fmod(t_cur_, t_i_);
    t_i_ *= static_cast<double>(t_mult_);
  }
  ++last_epoch_;
  set_rates(rates());
}

void CosineAnnealingWarmRestarts::step(double epoch) {
  TORCH_CHECK_VALUE(epoch >= 0, "Expected non-negative epoch, but got ", epoch);
  const auto first = static_cast<double>(t_0_);
  const auto growth = static_cast<double>(t_mult_);
  if (epoch < first) {
    t_i_ = first;
    t_cur_ = epoch;
  } else if (t_mult_ == 1) {
    t_cur_ = std::fmod(epoch, first);
  } else {
    const double num_restarts = std::trunc(std::log(epoch / first * (growth - 1) + 1) / std::log(growth));
    const double grown = std::pow(growth, num_restarts);
    t_cur_ = epoch - first * (grown - 1) / (growth - 1);
    t_i_ = first * grown;
  }
  last_epoch_ = static_cast<int64_t>(std::floor(epoch));
  set_rates(rates());
}

LRScheduler::Fields CosineAnnealingWarmRestarts::settings() {
  return {count_field("T_0", t_0_, 1), epochs_field("T_i", t_i_, 1), count_field("T_mult", t_mult_, 1),
          number_field("eta_min", eta_min_), epochs_field("T_cur", t_cur_, -1)};
}

}  // namespace cohort::optim
