#include "cohort/checkpoint/optimizer/scheduler_state.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "cohort/base/text/text.h"
#include "cohort/checkpoint/optimizer/optimizer_values.h"
#include "cohort/checkpoint/optimizer/python_values.h"

namespace cohort::checkpoint {
namespace {

using torch::optim::LRScheduler;
using torch::optim::Optimizer;
using torch::optim::StepLR;
using Plateau = torch::optim::ReduceLROnPlateauScheduler;
using Value = c10::IValue;

// LibTorch's schedulers give no access to their state. An explicit instantiation may name private members.
template <class Tag, typename Tag::Type kMember>
struct Revealed {
  friend typename Tag::Type member(Tag) { return kMember; }
};
#define COHORT_REVEAL(Tag, Class, FieldType, field) \
  struct Tag {                                      \
    using Type = FieldType Class::*;                \
    friend Type member(Tag);                        \
  };                                                \
  template struct Revealed<Tag, &Class::field>

COHORT_REVEAL(StepCountOf, LRScheduler, unsigned, step_count_);
COHORT_REVEAL(StepSizeOf, StepLR, const unsigned, step_size_);
COHORT_REVEAL(GammaOf, StepLR, const double, gamma_);
COHORT_REVEAL(ModeOf, Plateau, Plateau::SchedulerMode, mode);
COHORT_REVEAL(ModeWorseOf, Plateau, float, mode_worse);
COHORT_REVEAL(FactorOf, Plateau, float, factor);
COHORT_REVEAL(PatienceOf, Plateau, int, patience);
COHORT_REVEAL(ThresholdOf, Plateau, double, threshold);
COHORT_REVEAL(ThresholdModeOf, Plateau, Plateau::ThresholdMode, threshold_mode);
COHORT_REVEAL(CooldownOf, Plateau, int, cooldown);
COHORT_REVEAL(CooldownCounterOf, Plateau, int, cooldown_counter);
COHORT_REVEAL(MinLrsOf, Plateau, std::vector<float>, min_lrs);
COHORT_REVEAL(EpsOf, Plateau, double, eps);
COHORT_REVEAL(BestOf, Plateau, float, best);
COHORT_REVEAL(LastEpochOf, Plateau, int, last_epoch);
COHORT_REVEAL(NumBadEpochsOf, Plateau, int, num_bad_epochs);
#undef COHORT_REVEAL

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns 0.1, not 0.10000000149011612.
double decimal(float number) { return base::parse_double(fmt::format("{}", number)).value_or(number); }

Value last_rates(const Optimizer& optimizer) {
  c10::List<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void check_is_dict(const Value& state) {
  TORCH_CHECK_VALUE(state.isGenericDict(),
                    "[cohort] load_scheduler_state_dict: the state of a scheduler is a dict, not ",
                    detail::text_of(state));
}

// Leaves `number` unchanged if the dict has no such key.
template <class Number>
void read_number(const Value& state, const char* key, Number& number) {
  const auto value = detail::find_entry(state, key);
  if (!value) return;
  TORCH_CHECK_VALUE(value->isInt() || value->isDouble(), "[cohort] load_scheduler_state_dict: \"", key,
                    "\" of the state is ", detail::text_of(*value), ", not a number");
  const double given = value->isInt() ? static_cast<double>(value->toInt()) : value->toDouble();
  constexpr bool kIsWhole = std::is_integral_v<Number>;
  TORCH_CHECK_VALUE(!kIsWhole || (given == std::trunc(given) && std::abs(given) <= std::numeric_limits<int>::max()),
                    "[cohort] load_scheduler_state_dict: \"", key, "\" of the state is ", detail::text_of(*value),
                    ", not a whole number in the range of a count");
  number = static_cast<Number>(given);
}

template <class Choice>
struct Word {
  const char* text;
  Choice choice;
};

// Reads one of two words.
template <class Choice>
void read_word(const Value& state, const char* key, const Word<Choice>& one, const Word<Choice>& other,
               Choice& choice) {
  const auto value = detail::find_entry(state, key);
  if (!value) return;
  const bool is_one = value->isString() && value->toStringRef() == one.text;
  TORCH_CHECK_VALUE(is_one || (value->isString() && value->toStringRef() == other.text),
                    "[cohort] load_scheduler_state_dict: \"", key, "\" of the state is ", detail::text_of(*value),
                    ", neither '", one.text, "' nor '", other.text, "'");
  choice = is_one ? one.choice : other.choice;
}

void check_setting(const Value& state, const char* key, double own) {
  double given = own;
  read_number(state, key, given);
  TORCH_CHECK_VALUE(
      given == own, "[cohort] load_scheduler_state_dict: the state is of a StepLR with ", key, "=",
      fmt::format("{}", given), ", but this one has ", key, "=", fmt::format("{}", own),
      "\n  hint: construct the scheduler with the settings of the run that was saved: LibTorch cannot change "
      "them later");
}

}  // namespace

Value scheduler_state_dict(const LRScheduler& scheduler, const Optimizer& optimizer) {
  auto state = detail::empty_dict();
  if (const auto* const step_lr = dynamic_cast<const StepLR*>(&scheduler)) {
    state.insert("step_size", static_cast<int64_t>(step_lr->*member(StepSizeOf())));
    state.insert("gamma", step_lr->*member(GammaOf()));
  }
  const auto count = static_cast<int64_t>(scheduler.*member(StepCountOf()));
  state.insert("last_epoch", count - 1);
  state.insert("_step_count", count);
  state.insert("_is_initial", false);
  state.insert("_get_lr_called_within_step", false);
  state.insert("_last_lr", last_rates(optimizer));
  return state;
}

void load_scheduler_state_dict(LRScheduler& scheduler, const Value& state) {
  check_is_dict(state);
  TORCH_CHECK_VALUE(detail::find_entry(state, "last_epoch"),
                    "[cohort] load_scheduler_state_dict: the state has no \"last_epoch\", but ",
                    detail::keys_in_words(state), "\n  hint: load a state of scheduler.state_dict()");
  int64_t last_epoch = 0;
  read_number(state, "last_epoch", last_epoch);
  TORCH_CHECK_VALUE(last_epoch >= -1, "[cohort] load_scheduler_state_dict: \"last_epoch\" of the state is ",
                    last_epoch);
  if (const auto* const step_lr = dynamic_cast<const StepLR*>(&scheduler)) {
    check_setting(state, "step_size", step_lr->*member(StepSizeOf()));
    check_setting(state, "gamma", step_lr->*member(GammaOf()));
  }
  scheduler.*member(StepCountOf()) = static_cast<unsigned>(last_epoch + 1);
}

Value scheduler_state_dict(const Plateau& scheduler, const Optimizer& optimizer) {
  const bool is_min = scheduler.*member(ModeOf()) == Plateau::min;
  const double worst = is_min ? kInfinity : -kInfinity;
  const float best = scheduler.*member(BestOf());
  c10::List<double> min_lrs;
  for (const float rate : scheduler.*member(MinLrsOf())) min_lrs.push_back(decimal(rate));
  auto state = detail::empty_dict();
  state.insert("factor", decimal(scheduler.*member(FactorOf())));
  state.insert("min_lrs", min_lrs);
  state.insert("patience", static_cast<int64_t>(scheduler.*member(PatienceOf())));
  state.insert("cooldown", static_cast<int64_t>(scheduler.*member(CooldownOf())));
  state.insert("eps", scheduler.*member(EpsOf()));
  state.insert("last_epoch", static_cast<int64_t>(scheduler.*member(LastEpochOf())));
  state.insert("_last_lr", last_rates(optimizer));
  state.insert("mode_worse", worst);
  state.insert("mode", std::string(is_min ? "min" : "max"));
  state.insert("threshold", scheduler.*member(ThresholdOf()));
  state.insert("threshold_mode", std::string(scheduler.*member(ThresholdModeOf()) == Plateau::rel ? "rel" : "abs"));
  state.insert("best", best == scheduler.*member(ModeWorseOf()) ? worst : static_cast<double>(best));
  state.insert("cooldown_counter", static_cast<int64_t>(scheduler.*member(CooldownCounterOf())));
  state.insert("num_bad_epochs", static_cast<int64_t>(scheduler.*member(NumBadEpochsOf())));
  return state;
}

void load_scheduler_state_dict(Plateau& scheduler, const Value& state) {
  check_is_dict(state);
  TORCH_CHECK_VALUE(detail::find_entry(state, "num_bad_epochs"),
                    "[cohort] load_scheduler_state_dict: the state has no \"num_bad_epochs\", but ",
                    detail::keys_in_words(state), "\n  hint: give it the state_dict() of a ReduceLROnPlateau");
  Plateau copy = scheduler;
  read_number(state, "factor", copy.*member(FactorOf()));
  read_number(state, "patience", copy.*member(PatienceOf()));
  read_number(state, "cooldown", copy.*member(CooldownOf()));
  read_number(state, "eps", copy.*member(EpsOf()));
  read_number(state, "last_epoch", copy.*member(LastEpochOf()));
  read_number(state, "mode_worse", copy.*member(ModeWorseOf()));
  read_word<Plateau::SchedulerMode>(state, "mode", {"min", Plateau::min}, {"max", Plateau::max},
                                    copy.*member(ModeOf()));
  read_number(state, "threshold", copy.*member(ThresholdOf()));
  read_word<Plateau::ThresholdMode>(state, "threshold_mode", {"rel", Plateau::rel}, {"abs", Plateau::abs},
                                    copy.*member(ThresholdModeOf()));
  read_number(state, "best", copy.*member(BestOf()));
  read_number(state, "cooldown_counter", copy.*member(CooldownCounterOf()));
  read_number(state, "num_bad_epochs", copy.*member(NumBadEpochsOf()));
  if (const auto rates = detail::find_entry(state, "min_lrs")) {
    auto& own = copy.*member(MinLrsOf());
    const auto count = rates->isList() ? rates->toListRef().size() : 0;
    TORCH_CHECK_VALUE(count == own.size(), "[cohort] load_scheduler_state_dict: \"min_lrs\" of the state are of ",
                      count, " parameter groups, but the optimizer has ", own.size());
    for (size_t i = 0; i < count; ++i) {
      auto rate = detail::empty_dict();
      rate.insert("min_lrs", rates->toListRef()[i]);
      read_number(rate, "min_lrs", own[i]);
    }
  }
  const auto move = [&]<class Tag>(Tag tag) { scheduler.*member(tag) = copy.*member(tag); };
  const auto move_all = [&](auto... tags) { (move(tags), ...); };
  move_all(FactorOf(), PatienceOf(), CooldownOf(), EpsOf(), LastEpochOf(), ModeWorseOf(), ModeOf(), ThresholdOf(),
           ThresholdModeOf(), BestOf(), CooldownCounterOf(), NumBadEpochsOf(), MinLrsOf());
}

}  // namespace cohort::checkpoint
