#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cohort/checkpoint/optimizer/optimizer_state.h"
#include "cohort/checkpoint/optimizer/optimizer_values.h"
#include "cohort/checkpoint/optimizer/python_values.h"
#include "cohort/checkpoint/optimizer/scheduler_notes.h"

namespace cohort::checkpoint {
namespace {

using optim::OptimizerKind;
using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using Value = c10::IValue;

constexpr const char* kPythonLoader = "load_optimizer_state_dict";

c10::impl::GenericDict dict_of(const optim::Fields& fields) {
  auto dict = detail::empty_dict();
  for (const auto& field : fields) {
    if (auto value = detail::value_of(field)) dict.insert(field.key, std::move(*value));
  }
  return dict;
}

// Reads everything before it changes anything.
class PythonLoader {
 public:
  PythonLoader(Optimizer& optimizer, const Value& state) : optimizer_(optimizer), kind_(detail::kind_of(optimizer)) {
    TORCH_CHECK_VALUE(state.isGenericDict(), "[cohort] ", kPythonLoader,
                      ": the state dict of an optimizer is a dict, not ", detail::text_of(state));
    groups_ = detail::entry_of(state, "param_groups");
    states_ = detail::entry_of(state, "state");
    TORCH_CHECK_VALUE(
        groups_.isList() && states_.isGenericDict(), "[cohort] ", kPythonLoader,
        ": the state dict of an optimizer has a dict \"state\" and a list \"param_groups\", but this one has ",
        detail::keys_in_words(state),
        "\n  hint: give it what optimizer.state_dict() has given, which files often hold under \"optimizer\"");
  }

  void load() {
    const auto groups = groups_.toListRef();
    TORCH_CHECK_VALUE(groups.size() == optimizer_.param_groups().size(),
                      "loaded state dict has a different number of parameter groups");
    for (size_t i = 0; i < groups.size(); ++i) match(i, groups[i]);
    for (size_t i = 0; i < groups.size(); ++i) read_options(i, groups[i]);
    for (const auto& entry : states_.toGenericDict()) read_state(detail::key_text(entry.key()), entry.value());
    loaded_.commit(optimizer_);
  }

 private:
  struct Owner {
    size_t group;
    at::Tensor parameter;
  };

  void match(size_t group, const Value& saved) {
    const Value ids = saved.isGenericDict() ? detail::entry_of(saved, "params") : Value();
    TORCH_CHECK_VALUE(ids.isList(), "[cohort] ", kPythonLoader, ": parameter group ", group,
                      " of the checkpoint has no list \"params\"");
    const auto& parameters = optimizer_.param_groups()[group].params();
    TORCH_CHECK_VALUE(ids.toListRef().size() == parameters.size(),
                      "loaded state dict contains a parameter group that doesn't match the size of optimizer's group");
    for (size_t i = 0; i < parameters.size(); ++i) {
      owners_.emplace(detail::key_text(ids.toListRef()[i]), Owner{group, parameters[i]});
    }
  }

  void read_options(size_t group, const Value& saved) {
    const std::string where = c10::str("parameter group ", group);
    auto options = optimizer_.param_groups()[group].options().clone();
    std::unordered_set<std::string> known{"params"};
    const at::Tensor no_parameter;
    for (const auto& field : kind_.options(*options)) {
      known.insert(field.key);
      const auto value = detail::find_entry(saved, field.key);
      TORCH_CHECK_VALUE(value || std::holds_alternative<optim::PythonOption>(field.place), "[cohort] ", kPythonLoader,
                        ": ", where, " of the checkpoint has no \"", field.key,
                        "\"\n  hint: the checkpoint is of another kind of optimizer than this ", kind_.name);
      if (value) detail::set_value(field, *value, no_parameter, where, kind_.name);
    }
    for (const auto& entry : saved.toGenericDict()) {
      const std::string key = detail::key_text(entry.key());
      TORCH_CHECK_VALUE(known.contains(key) || detail::may_be_ignored(key, entry.value()), "[cohort] ", kPythonLoader,
                        ": ", where, " of the checkpoint has ", key, "=", detail::text_of(entry.value()), ", which ",
                        kind_.name, " does not have\n  hint: the checkpoint is of another kind of optimizer");
    }
    loaded_.options.push_back(std::move(options));
  }

  void read_state(const std::string& id, const Value& saved) {
    const auto owner = owners_.find(id);
    TORCH_CHECK_VALUE(owner != owners_.end(), "[cohort] ", kPythonLoader, ": the checkpoint has a state of parameter ",
                      id, ", which none of its groups has");
    const std::string where = "the state of parameter " + id;
    TORCH_CHECK_VALUE(saved.isGenericDict(), "[cohort] ", kPythonLoader, ": ", where, " is ", detail::text_of(saved),
                      ", not a dict");
    const auto& [group, parameter] = owner->second;
    auto state = kind_.make_state();
    std::unordered_set<std::string> known;
    for (const auto& field : kind_.state(*state)) {
      known.insert(field.key);
      const auto value = detail::find_entry(saved, field.key);
      const bool is_needed = std::holds_alternative<optim::StepCount>(field.place);
      TORCH_CHECK_VALUE(value || !is_needed, "[cohort] ", kPythonLoader, ": ", where, " has no \"", field.key,
                        "\"\n  hint: the checkpoint is of another kind of optimizer than this ", kind_.name);
      if (value) detail::set_value(field, *value, parameter, where, kind_.name);
    }
    for (const auto& entry : saved.toGenericDict()) {
      const std::string key = detail::key_text(entry.key());
      TORCH_CHECK_VALUE(known.contains(key) || entry.value().isNone(), "[cohort] ", kPythonLoader, ": ", where,
                        " has \"", key, "\", which ", kind_.name,
                        " does not have\n  hint: the checkpoint is of another kind of optimizer");
    }
    state = detail::checked_state(kind_, *loaded_.options[group], std::move(state), where);
    if (state) loaded_.states.emplace_back(parameter, std::move(state));
  }

  Optimizer& optimizer_;
  const OptimizerKind& kind_;
  Value groups_;
  Value states_;
  std::unordered_map<std::string, Owner> owners_;
  detail::LoadedOptimizer loaded_;
};

}  // namespace

c10::IValue optimizer_state_dict(const Optimizer& given) {
  const Optimizer& optimizer = detail::full_optimizer_of(given);
  const OptimizerKind& kind = detail::kind_of(optimizer);
  c10::impl::GenericDict states(c10::IntType::get(), c10::AnyType::get());
  c10::impl::GenericList groups(c10::AnyType::get());
  const auto notes = detail::SchedulerNotes::find(given);
  int64_t number = 0;
  for (size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    const auto& group = optimizer.param_groups()[i];
    auto dict = dict_of(kind.options(const_cast<OptimizerOptions&>(group.options())));
    if (notes) {
      for (const auto& [key, value] : notes->group(i)) dict.insert(key, value);
    }
    c10::List<int64_t> numbers;
    for (const auto& parameter : group.params()) {
      const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (state != optimizer.state().end()) states.insert(number, dict_of(kind.state(*state->second)));
      numbers.push_back(number++);
    }
    dict.insert("params", numbers);
    groups.push_back(dict);
  }
  auto result = detail::empty_dict();
  result.insert("state", states);
  result.insert("param_groups", groups);
  return result;
}

void load_optimizer_state_dict(Optimizer& optimizer, const c10::IValue& state) {
  detail::load_full(optimizer, [&](Optimizer& full) { PythonLoader(full, state).load(); });
  const auto notes = detail::SchedulerNotes::find(optimizer);
  if (!notes) return;
  const auto groups = detail::entry_of(state, "param_groups").toListRef();
  for (size_t i = 0; i < groups.size(); ++i) notes->load(i, groups[i]);
}

}  // namespace cohort::checkpoint
