#include "cohort/train/optim/factor_schedulers.h"

#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/checkpoint/optimizer/optimizer_values.h"
#include "cohort/checkpoint/optimizer/python_values.h"
#include "cohort/train/optim/scheduler_field.h"

namespace cohort::optim {
namespace {

using torch::optim::Optimizer;
using Milestones = std::map<int64_t, int64_t>;

std::vector<RateFactor> of_all_groups(const Optimizer& optimizer, const RateFactor& factor) {
  return std::vector<RateFactor>(optimizer.param_groups().size(), factor);
}

std::vector<RateFactor> of_each_group(const Optimizer& optimizer, std::vector<RateFactor> factors) {
  TORCH_CHECK_VALUE(factors.size() == optimizer.param_groups().size(), "Expected ", optimizer.param_groups().size(),
                    " lr_lambdas, but got ", factors.size());
  return factors;
}

SchedulerField lambdas_field(const std::vector<RateFactor>& factors) {
  c10::impl::GenericList nothing(c10::AnyType::get());
  for (size_t i = 0; i < factors.size(); ++i) nothing.push_back(c10::IValue());
  return constant_field("lr_lambdas", nothing);
}

std::vector<double> times(std::vector<double> rates, const std::vector<RateFactor>& factors, int64_t epoch) {
  for (size_t i = 0; i < rates.size(); ++i) rates[i] *= factors.at(i)(epoch);
  return rates;
}

c10::IValue counts_of(const Milestones& milestones) {
  auto counts = checkpoint::detail::empty_counter();
  for (const auto& [epoch, count] : milestones) counts.insert(epoch, count);
  return counts;
}

Milestones milestones_of(const c10::IValue& value, const std::string& where) {
  TORCH_CHECK_VALUE(value.isGenericDict(), where, " is ", checkpoint::detail::text_of(value), ", not a dict");
  Milestones milestones;
  for (const auto& entry : value.toGenericDict()) {
    milestones[whole_number_of(entry.key(), where)] = whole_number_of(entry.value(), where);
  }
  return milestones;
}

}  // namespace

LambdaLR::LambdaLR(Optimizer& optimizer, const RateFactor& lr_lambda)
    : LambdaLR(optimizer, of_all_groups(optimizer, lr_lambda)) {}

LambdaLR::LambdaLR(Optimizer& optimizer, std::vector<RateFactor> lr_lambdas)
    : LRScheduler("LambdaLR", optimizer), lr_lambdas_(of_each_group(optimizer, std::move(lr_lambdas))) {
  start();
}

LRScheduler::Rates LambdaLR::rates() { return times(base_lrs_, lr_lambdas_, last_epoch_); }

LRScheduler::Fields LambdaLR::functions() { return {lambdas_field(lr_lambdas_)}; }

MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, const RateFactor& lr_lambda)
    : MultiplicativeLR(optimizer, of_all_groups(optimizer, lr_lambda)) {}

MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, std::vector<RateFactor> lr_lambdas)
    : LRScheduler("MultiplicativeLR", optimizer), lr_lambdas_(of_each_group(optimizer, std::move(lr_lambdas))) {
  start();
}

LRScheduler::Rates MultiplicativeLR::rates() {
  return is_initial_ ? current_rates() : times(current_rates(), lr_lambdas_, last_epoch_);
}

LRScheduler::Fields MultiplicativeLR::functions() { return {lambdas_field(lr_lambdas_)}; }

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : LRScheduler("StepLR", optimizer), step_size_(step_size), gamma_(gamma) {
  TORCH_CHECK_VALUE(step_size > 0, "[cohort] StepLR: step_size must be at least 1, not ", step_size);
  start();
}

LRScheduler::Rates StepLR::rates() {
  const bool is_due = last_epoch_ != 0 && last_epoch_ % step_size_ == 0;
  return is_due ? scaled(gamma_) : current_rates();
}

LRScheduler::Fields StepLR::settings() {
  return {count_field("step_size", step_size_, 1), number_field("gamma", gamma_)};
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, const std::vector<int64_t>& milestones, double gamma)
    : LRScheduler("MultiStepLR", optimizer), gamma_(gamma) {
  for (const int64_t milestone : milestones) ++milestones_[milestone];
  start();
}

LRScheduler::Rates MultiStepLR::rates() {
  const auto found = milestones_.find(last_epoch_);
  if (found == milestones_.end()) return current_rates();
  return scaled(std::pow(gamma_, static_cast<double>(found->second)));
}

LRScheduler::Rates MultiStepLR::rates_of_restart() {
  int64_t num_passed = 0;
  for (const auto& [epoch, count] : milestones_) num_passed += epoch <= 0 ? count : 0;
  return scaled_base(std::pow(gamma_, static_cast<double>(num_passed)));
}

LRScheduler::Fields MultiStepLR::settings() {
  return {{"milestones", [this] { return counts_of(milestones_); },
           [this](const c10::IValue& value, const std::string& where) -> SchedulerField::Commit {
             return [this, read = milestones_of(value, where)] { milestones_ = read; };
           }},
          number_field("gamma", gamma_)};
}

ConstantLR::ConstantLR(Optimizer& optimizer, double factor, int64_t total_iters)
    : LRScheduler("ConstantLR", optimizer), factor_(factor), total_iters_(total_iters) {
  TORCH_CHECK_VALUE(factor >= 0 && factor <= 1, "Constant multiplicative factor expected to be between 0 and 1.");
  start();
}

LRScheduler::Rates ConstantLR::rates() {
  if (last_epoch_ == 0) return scaled(factor_);
  return last_epoch_ == total_iters_ ? scaled(divide(1.0, factor_)) : current_rates();
}

LRScheduler::Rates ConstantLR::rates_of_restart() {
  return scaled_base(factor_ + (last_epoch_ >= total_iters_ ? 1 : 0) * (1 - factor_));
}

LRScheduler::Fields ConstantLR::settings() {
  return {number_field("factor", factor_), number_field("total_iters", total_iters_)};
}

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor, int64_t total_iters)
    : LRScheduler("LinearLR", optimizer),
      start_factor_(start_factor),
      end_factor_(end_factor),
      total_iters_(total_iters) {
  TORCH_CHECK_VALUE(start_factor > 0 && start_factor <= 1,
                    "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.");
  TORCH_CHECK_VALUE(end_factor >= 0 && end_factor <= 1, "Ending multiplicative factor expected to be between 0 and 1.");
  start();
}

LRScheduler::Rates LinearLR::rates() {
  if (last_epoch_ == 0) return scaled(start_factor_);
  if (is_initial_ || last_epoch_ > total_iters_) return current_rates();
  const double rise = end_factor_ - start_factor_;
  const double present =
      static_cast<double>(total_iters_) * start_factor_ + static_cast<double>(last_epoch_ - 1) * rise;
  return scaled(1.0 + divide(rise, present));
}

LRScheduler::Rates LinearLR::rates_of_restart() {
  const auto total = static_cast<double>(total_iters_);
  const double passed = std::min(total, static_cast<double>(last_epoch_));
  return scaled_base(start_factor_ + divide((end_factor_ - start_factor_) * passed, total));
}

LRScheduler::Fields LinearLR::settings() {
  return {number_field("start_factor", start_factor_), number_field("end_factor", end_factor_),
          number_field("total_iters", total_iters_)};
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma)
    : LRScheduler("ExponentialLR", optimizer), gamma_(gamma) {
  start();
}

LRScheduler::Rates ExponentialLR::rates() { return is_initial_ ? current_rates() : scaled(gamma_); }

LRScheduler::Fields ExponentialLR::settings() { return {number_field("gamma", gamma_)}; }

PolynomialLR::PolynomialLR(Optimizer& optimizer, int64_t total_iters, double power)
    : LRScheduler("PolynomialLR", optimizer), total_iters_(total_iters), power_(power) {
  start();
}

LRScheduler::Rates PolynomialLR::rates() {
  if (is_initial_ || last_epoch_ > total_iters_) return current_rates();
  const auto total = static_cast<double>(total_iters_);
  const double left = 1.0 - divide(static_cast<double>(last_epoch_), total);
  const double left_before = 1.0 - divide(static_cast<double>(last_epoch_ - 1), total);
  return scaled(std::pow(divide(left, left_before), power_));
}

LRScheduler::Rates PolynomialLR::rates_of_restart() {
  const auto total = static_cast<double>(total_iters_);
  const double passed = std::min(total, static_cast<double>(last_epoch_));
  return scaled_base(std::pow(1.0 - divide(passed, total), power_));
}

LRScheduler::Fields PolynomialLR::settings() {
  return {number_field("total_iters", total_iters_), number_field("power", power_)};
}

}  // namespace cohort::optim
