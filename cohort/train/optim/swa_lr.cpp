#include "cohort/train/optim/swa_lr.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "cohort/checkpoint/optimizer/scheduler_notes.h"
#include "cohort/train/optim/scheduler_field.h"

namespace cohort::optim {
namespace {

constexpr const char* kSwaRate = "swa_lr";

}  // namespace

SWALR::SWALR(torch::optim::Optimizer& optimizer, const PerGroup& swa_lr, int64_t anneal_epochs,
             Annealing anneal_strategy)
    : LRScheduler("SWALR", optimizer), anneal_epochs_(anneal_epochs), annealing_(anneal_strategy) {
  TORCH_CHECK_VALUE(anneal_epochs >= 0, "anneal_epochs must be equal or greater than 0, got ", anneal_epochs);
  const auto swa_lrs = swa_lr.of_groups(kSwaRate, num_groups());
  for (size_t i = 0; i < swa_lrs.size(); ++i) notes().set(i, kSwaRate, swa_lrs[i]);
  start();
}

double SWALR::part_at(int64_t epoch) const {
  const auto length = static_cast<double>(std::max<int64_t>(1, anneal_epochs_));
  const double t = std::max(0.0, std::min(1.0, static_cast<double>(epoch) / length));
  return annealing_ == Annealing::kCos ? (1 - std::cos(std::numbers::pi * t)) / 2 : t;
}

LRScheduler::Rates SWALR::rates() {
  const int64_t step = anneal_epochs_ == 0 ? std::max<int64_t>(1, step_count_ - 1) : step_count_ - 1;
  const double before = part_at(step - 1);
  const double now = part_at(step);
  Rates rates = current_rates();
  for (size_t i = 0; i < rates.size(); ++i) {
    const double swa_lr = note(i, kSwaRate);
    const double initial = before == 1 ? swa_lr : (rates[i] - before * swa_lr) / (1 - before);
    rates[i] = swa_lr * now + initial * (1 - now);
  }
  return rates;
}

LRScheduler::Fields SWALR::settings() {
  return {word_field("_anneal_strategy", annealing_, {"cos", "linear"}),
          count_field("anneal_epochs", anneal_epochs_, 0)};
}

}  // namespace cohort::optim
