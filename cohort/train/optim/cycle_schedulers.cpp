#include "cohort/train/optim/cycle_schedulers.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "cohort/base/numbers/count.h"
#include "cohort/checkpoint/optimizer/optimizer_values.h"
#include "cohort/checkpoint/optimizer/python_values.h"
#include "cohort/checkpoint/optimizer/scheduler_notes.h"
#include "cohort/train/optim/momentum.h"
#include "cohort/train/optim/scheduler_field.h"

namespace cohort::optim {
namespace {

constexpr const char* kInitial = "initial_lr";
constexpr const char* kMax = "max_lr";
constexpr const char* kMin = "min_lr";
constexpr const char* kMaxMomentum = "max_momentum";
constexpr const char* kBaseMomentum = "base_momentum";

int64_t positive(const char* name, int64_t value) {
  TORCH_CHECK_VALUE(value > 0, "Expected positive integer ", name, ", but got ", value);
  return value;
}

int64_t steps_of_cycle(const OneCycleOptions& options) {
  if (options.total_steps) return positive("total_steps", *options.total_steps);
  TORCH_CHECK_VALUE(options.epochs && options.steps_per_epoch,
                    "You must define either total_steps OR (epochs AND steps_per_epoch)");
  return base::multiply_capped(positive("epochs", *options.epochs),
                               positive("steps_per_epoch", *options.steps_per_epoch));
}

std::string name_of_note(const c10::IValue& phase, const char* key, const std::string& where) {
  const auto value = checkpoint::detail::entry_of(phase, key);
  TORCH_CHECK_VALUE(value.isString() && checkpoint::detail::is_scheduler_note(value.toStringRef()), where,
                    " has a phase with ", key, "=", checkpoint::detail::text_of(value));
  return value.toStringRef();
}

}  // namespace

OneCycleLR::OneCycleLR(torch::optim::Optimizer& optimizer, const PerGroup& max_lr, const OneCycleOptions& options)
    : LRScheduler("OneCycleLR", optimizer),
      total_steps_(steps_of_cycle(options)),
      phases_(phases_of(options, total_steps_)),
      annealing_(options.anneal_strategy),
      cycle_momentum_(options.cycle_momentum) {
  TORCH_CHECK_VALUE(options.pct_start >= 0 && options.pct_start <= 1,
                    "Expected float between 0 and 1 pct_start, but got ", options.pct_start);
  TORCH_CHECK_VALUE(options.div_factor != 0 && options.final_div_factor != 0,
                    "[cohort] OneCycleLR: div_factor and final_div_factor must not be 0");
  if (cycle_momentum_) use_beta1_ = uses_beta1(optimizer);
  note_rates(max_lr, options);
  start();
}

std::vector<OneCycleLR::Phase> OneCycleLR::phases_of(const OneCycleOptions& options, int64_t total_steps) {
  const auto total = static_cast<double>(total_steps);
  const Phase up{options.pct_start * total - 1, kInitial, kMax, kMaxMomentum, kBaseMomentum};
  if (!options.three_phase) return {up, {total - 1, kMax, kMin, kBaseMomentum, kMaxMomentum}};
  return {up,
          {2 * options.pct_start * total - 2, kMax, kInitial, kBaseMomentum, kMaxMomentum},
          {total - 1, kInitial, kMin, kMaxMomentum, kMaxMomentum}};
}

void OneCycleLR::note_rates(const PerGroup& max_lr, const OneCycleOptions& options) {
  const auto max_lrs = max_lr.of_groups("max_lr", num_groups());
  const auto max_momentums = options.max_momentum.of_groups("max_momentum", num_groups());
  const auto base_momentums = options.base_momentum.of_groups("base_momentum", num_groups());
  for (size_t i = 0; i < num_groups(); ++i) {
    const double initial_lr = max_lrs[i] / options.div_factor;
    notes().set(i, kInitial, initial_lr);
    notes().set(i, kMax, max_lrs[i]);
    notes().set(i, kMin, initial_lr / options.final_div_factor);
    if (!cycle_momentum_) continue;
    set_momentum(optimizer(), i, use_beta1_, max_momentums[i]);
    notes().set(i, kMaxMomentum, max_momentums[i]);
    notes().set(i, kBaseMomentum, base_momentums[i]);
  }
}

double OneCycleLR::anneal(double from, double to, double part) const {
  if (annealing_ == Annealing::kLinear) return (to - from) * part + from;
  return to + (from - to) / 2.0 * (std::cos(std::numbers::pi * part) + 1);
}

double OneCycleLR::annealed_note(size_t group, const std::string& from, const std::string& to, double part) const {
  return anneal(note(group, from.c_str()), note(group, to.c_str()), part);
}

LRScheduler::Rates OneCycleLR::rates() {
  TORCH_CHECK_VALUE(last_epoch_ <= total_steps_, "Tried to step ", last_epoch_,
                    " times. The specified number of total steps is ", total_steps_);
  const auto step = static_cast<double>(last_epoch_);
  double start_step = 0;
  const Phase* phase = &phases_.front();
  while (step > phase->end_step && phase != &phases_.back()) {
    start_step = phase->end_step;
    ++phase;
  }
  const double part = divide(step - start_step, phase->end_step - start_step);
  Rates rates;
  for (size_t i = 0; i < num_groups(); ++i) {
    rates.push_back(annealed_note(i, phase->start_lr, phase->end_lr, part));
    if (!cycle_momentum_) continue;
    set_momentum(optimizer(), i, use_beta1_, annealed_note(i, phase->start_momentum, phase->end_momentum, part));
  }
  return rates;
}

SchedulerField OneCycleLR::phases_field() {
  const auto write = [this] {
    c10::impl::GenericList list(c10::AnyType::get());
    for (auto& phase : phases_) {
      auto dict = checkpoint::detail::empty_dict();
      const bool is_last = &phase == &phases_.back();
      const auto end_step = is_last ? epochs_field("", phase.end_step, 0).write() : c10::IValue(phase.end_step);
      dict.insert("end_step", end_step);
      dict.insert("start_lr", phase.start_lr);
      dict.insert("end_lr", phase.end_lr);
      dict.insert("start_momentum", phase.start_momentum);
      dict.insert("end_momentum", phase.end_momentum);
      list.push_back(dict);
    }
    return c10::IValue(list);
  };
  const auto read = [this](const c10::IValue& value, const std::string& where) -> SchedulerField::Commit {
    std::vector<Phase> phases;
    for (const auto& item : items_of(value, where)) {
      TORCH_CHECK_VALUE(item.isGenericDict(), where, " has a phase that is ", checkpoint::detail::text_of(item));
      phases.push_back({number_of(checkpoint::detail::entry_of(item, "end_step"), where),
                        name_of_note(item, "start_lr", where), name_of_note(item, "end_lr", where),
                        name_of_note(item, "start_momentum", where), name_of_note(item, "end_momentum", where)});
    }
    TORCH_CHECK_VALUE(!phases.empty(), where, " has no phase");
    return [this, phases] { phases_ = phases; };
  };
  return {"_schedule_phases", write, read};
}

LRScheduler::Fields OneCycleLR::settings() {
  Fields fields;
  fields.push_back(count_field("total_steps", total_steps_, 1));
  fields.push_back(phases_field());
  fields.push_back(word_field("_anneal_func_type", annealing_, {"cos", "linear"}));
  fields.push_back(flag_field("cycle_momentum", cycle_momentum_));
  if (cycle_momentum_) fields.push_back(flag_field("use_beta1", use_beta1_));
  return fields;
}

CyclicLR::CyclicLR(torch::optim::Optimizer& optimizer, const PerGroup& base_lr, const PerGroup& max_lr,
                   const CyclicOptions& options)
    : LRScheduler("CyclicLR", optimizer),
      max_lrs_(max_lr.of_groups("max_lr", num_groups())),
      total_size_(static_cast<double>(options.step_size_up) +
                  static_cast<double>(options.step_size_down.value_or(options.step_size_up))),
      step_ratio_(static_cast<double>(options.step_size_up) / total_size_),
      mode_(options.mode),
      gamma_(options.gamma),
      scale_fn_(options.scale_fn),
      scale_mode_(options.scale_mode),
      cycle_momentum_(options.cycle_momentum) {
  TORCH_CHECK_VALUE(options.step_size_up > 0 && total_size_ > static_cast<double>(options.step_size_up),
                    "[cohort] CyclicLR: step_size_up and step_size_down must be at least 1");
  const Rates base_lrs = base_lr.of_groups("base_lr", num_groups());
  if (cycle_momentum_) {
    use_beta1_ = uses_beta1(optimizer);
    base_momentums_ = options.base_momentum.of_groups("base_momentum", num_groups());
    max_momentums_ = options.max_momentum.of_groups("max_momentum", num_groups());
  }
  if (!scale_fn_) scale_mode_ = mode_ == CyclicMode::kExpRange ? ScaleMode::kIterations : ScaleMode::kCycle;
  set_rates(base_lrs);
  for (size_t i = 0; cycle_momentum_ && i < num_groups(); ++i) {
    set_momentum(optimizer, i, use_beta1_, max_momentums_[i]);
    notes().set(i, kMaxMomentum, max_momentums_[i]);
    notes().set(i, kBaseMomentum, base_momentums_[i]);
  }
  start();
  base_lrs_ = base_lrs;
}

double CyclicLR::scale(double cycle) const {
  const double position = scale_mode_ == ScaleMode::kCycle ? cycle : static_cast<double>(last_epoch_);
  if (scale_fn_) return scale_fn_(position);
  if (mode_ == CyclicMode::kTriangular2) return 1 / std::pow(2.0, position - 1);
  return mode_ == CyclicMode::kExpRange ? std::pow(gamma_, position) : 1.0;
}

LRScheduler::Rates CyclicLR::rates() {
  const double passed = divide(static_cast<double>(last_epoch_), total_size_);
  const double cycle = std::floor(1 + passed);
  const double part = 1.0 + passed - cycle;
  const double height = part <= step_ratio_ ? divide(part, step_ratio_) : divide(part - 1, step_ratio_ - 1);
  Rates rates;
  for (size_t i = 0; i < num_groups(); ++i) {
    rates.push_back(base_lrs_.at(i) + (max_lrs_.at(i) - base_lrs_.at(i)) * height * scale(cycle));
  }
  for (size_t i = 0; cycle_momentum_ && i < num_groups(); ++i) {
    const double range = (max_momentums_.at(i) - base_momentums_.at(i)) * height;
    set_momentum(optimizer(), i, use_beta1_, max_momentums_[i] - range * scale(cycle));
  }
  return rates;
}

LRScheduler::Fields CyclicLR::settings() {
  Fields fields{numbers_field("max_lrs", max_lrs_, num_groups()),
                number_field("total_size", total_size_),
                number_field("step_ratio", step_ratio_),
                word_field("mode", mode_, {"triangular", "triangular2", "exp_range"}),
                number_field("gamma", gamma_),
                word_field("scale_mode", scale_mode_, {"cycle", "iterations"}),
                flag_field("cycle_momentum", cycle_momentum_)};
  if (cycle_momentum_) {
    fields.push_back(flag_field("use_beta1", use_beta1_));
    fields.push_back(numbers_field("base_momentums", base_momentums_, num_groups()));
    fields.push_back(numbers_field("max_momentums", max_momentums_, num_groups()));
  }
  return fields;
}

LRScheduler::Fields CyclicLR::functions() { return {constant_field("_scale_fn_custom", c10::IValue())}; }

}  // namespace cohort::optim
