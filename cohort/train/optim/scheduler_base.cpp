#include "cohort/train/optim/scheduler_base.h"

#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "cohort/checkpoint/optimizer/optimizer_values.h"
#include "cohort/checkpoint/optimizer/python_values.h"
#include "cohort/checkpoint/optimizer/scheduler_notes.h"
#include "cohort/train/optim/scheduler_field.h"

namespace cohort::optim {
namespace {

constexpr const char* kInitialRate = "initial_lr";

// Keys that some of Python's releases add to states, and that have no effect.
bool is_known_in_any_state(const std::string& key) {
  static constexpr std::array<std::string_view, 4> kKeys = {"verbose", "_step_count", "_is_initial",
                                                            "_get_lr_called_within_step"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

}  // namespace

std::vector<double> PerGroup::of_groups(const char* name, size_t num_groups) const {
  if (is_one_) return std::vector<double>(num_groups, values_[0]);
  TORCH_CHECK_VALUE(values_.size() == num_groups, name, " must have the same length as optimizer.param_groups. ", name,
                    " has ", values_.size(), " values, param_groups has ", num_groups, ".");
  return values_;
}

LRScheduler::LRScheduler(const char* name, torch::optim::Optimizer& optimizer)
    : name_(name), optimizer_(optimizer), notes_(checkpoint::detail::SchedulerNotes::of(optimizer)) {
  last_lr_ = current_rates();
}

LRScheduler::~LRScheduler() = default;

void LRScheduler::start() {
  const Rates present = current_rates();
  base_lrs_.clear();
  for (size_t i = 0; i < present.size(); ++i) {
    if (!notes().get(i, kInitialRate)) notes().set(i, kInitialRate, present[i]);
    base_lrs_.push_back(note(i, kInitialRate));
  }
  begin();
}

void LRScheduler::begin() {
  step_count_ = 0;
  is_initial_ = true;
  step();
  is_initial_ = false;
}

void LRScheduler::step() {
  ++step_count_;
  ++last_epoch_;
  set_rates(rates());
}

void LRScheduler::restart() {
  last_epoch_ = 0;
  set_rates(rates_of_restart());
}

LRScheduler::Rates LRScheduler::rates() { return current_rates(); }

LRScheduler::Rates LRScheduler::current_rates() const {
  Rates rates;
  for (const auto& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void LRScheduler::set_rates(const Rates& rates) {
  TORCH_CHECK_VALUE(rates.size() == num_groups(), "[cohort] ", name_, "::step: the schedule is for ", rates.size(),
                    " parameter groups, but the optimizer has ", num_groups(),
                    "\n  hint: construct schedulers after the last add_param_group()");
  for (size_t i = 0; i < rates.size(); ++i) optimizer_.param_groups()[i].options().set_lr(rates[i]);
  last_lr_ = rates;
}

size_t LRScheduler::num_groups() const { return optimizer_.param_groups().size(); }

LRScheduler::Rates LRScheduler::scaled(double factor) const {
  Rates rates = current_rates();
  for (double& rate : rates) rate *= factor;
  return rates;
}

LRScheduler::Rates LRScheduler::scaled_base(double factor) const {
  Rates rates = base_lrs_;
  for (double& rate : rates) rate *= factor;
  return rates;
}

double LRScheduler::divide(double numerator, double denominator) const {
  TORCH_CHECK_VALUE(denominator != 0, "[cohort] ", name_, "::step: with these settings a part of the schedule has no ",
                    "steps, so no rate is defined at step ", last_epoch_);
  return numerator / denominator;
}

double LRScheduler::note(size_t group, const char* key) const {
  const auto value = notes_->get(group, key);
  TORCH_CHECK_VALUE(value, "[cohort] ", name_, ": no scheduler has set \"", key, "\" of parameter group ", group,
                    "\n  hint: construct schedulers after the last add_param_group()");
  return *value;
}

LRScheduler::Fields LRScheduler::settings() { return {}; }

LRScheduler::Fields LRScheduler::functions() { return {}; }

LRScheduler::Fields LRScheduler::fields() {
  Fields fields = settings();
  fields.push_back(numbers_field("base_lrs", base_lrs_, num_groups()));
  fields.push_back(number_field("last_epoch", last_epoch_));
  fields.push_back(number_field("_step_count", step_count_));
  fields.push_back(constant_field("_is_initial", false));
  fields.push_back(constant_field("_get_lr_called_within_step", false));
  fields.push_back(numbers_field("_last_lr", last_lr_, num_groups()));
  for (auto& function : functions()) fields.push_back(std::move(function));
  return fields;
}

c10::IValue LRScheduler::state_dict() const {
  auto dict = checkpoint::detail::empty_dict();
  for (const auto& field : const_cast<LRScheduler*>(this)->fields()) dict.insert(field.key, field.write());
  return dict;
}

void LRScheduler::load_state_dict(const c10::IValue& state) { read_state(state)(); }

std::function<void()> LRScheduler::read_state(const c10::IValue& state) {
  const std::string function = std::string("[cohort] ") + name_ + "::load_state_dict: ";
  TORCH_CHECK_VALUE(state.isGenericDict(), function, "the state of a scheduler is a dict, not ",
                    checkpoint::detail::text_of(state));
  TORCH_CHECK_VALUE(checkpoint::detail::find_entry(state, "_last_lr"), function, "the state has no \"_last_lr\", but ",
                    checkpoint::detail::keys_in_words(state), "\n  hint: load a state of scheduler.state_dict()");
  const auto fields = this->fields();
  std::vector<SchedulerField::Commit> commits;
  for (const auto& entry : state.toGenericDict()) {
    const auto key = checkpoint::detail::key_text(entry.key());
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&](const SchedulerField& known) { return known.key == key; });
    if (field != fields.end()) {
      commits.push_back(field->read(entry.value(), function + "\"" + key + "\" of the state"));
      continue;
    }
    TORCH_CHECK_VALUE(
        is_known_in_any_state(key), function, "the state has \"", key, "\", which this ", name_,
        " does not have\n  hint: construct the same kind of scheduler as in the saved run, with the same settings");
  }
  return [commits] {
    for (const auto& commit : commits) commit();
  };
}

SchedulerField LRScheduler::schedulers_field(const std::vector<std::shared_ptr<LRScheduler>>& schedulers) {
  const auto write = [&schedulers] {
    c10::impl::GenericList states(c10::AnyType::get());
    for (const auto& scheduler : schedulers) states.push_back(scheduler->state_dict());
    return c10::IValue(states);
  };
  const auto read = [&schedulers](const c10::IValue& value, const std::string& where) -> SchedulerField::Commit {
    const auto states = items_of(value, where);
    TORCH_CHECK_VALUE(states.size() == schedulers.size(), where, " is of ", states.size(), " schedulers, not of ",
                      schedulers.size());
    std::vector<SchedulerField::Commit> commits;
    for (size_t i = 0; i < states.size(); ++i) commits.push_back(schedulers[i]->read_state(states[i]));
    return [commits] {
      for (const auto& commit : commits) commit();
    };
  };
  return {"_schedulers", write, read};
}

}  // namespace cohort::optim
