#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/base/text/text.h"
#include "cohort/checkpoint/optimizer/divided_optimizer.h"
#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/checkpoint/state/model_shards.h"
#include "cohort/checkpoint/state/participants.h"
#include "cohort/checkpoint/state/state_plan.h"
#include "cohort/dtensor/api/dtensor.h"

namespace cohort::checkpoint {
namespace {

using detail::DividedOptimizer;
using detail::HeldTensor;
using detail::ModelShards;
using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using Value = c10::IValue;

bool is_like_parameter(const optim::Field& field) { return std::holds_alternative<at::Tensor*>(field.place); }

void check_is_full(const HeldTensor& held, const DividedOptimizer& optimizer, const optim::Field& field) {
  const bool is_sharded = held.spec || optimizer.is_divided();
  const bool is_free = std::holds_alternative<optim::FreeTensor>(field.place);
  TORCH_CHECK_NOT_IMPLEMENTED(!is_sharded || !is_free, "[cohort] the state of ", optimizer.kind().name,
                              " does not belong to single parameters, so it cannot be sharded with them");
}

void get_state_of(const HeldTensor& held, const at::Tensor& parameter, const OptimizerOptions& options,
                  const DividedOptimizer& optimizer, ShardedStateDict& result) {
  if (!optimizer.owns(parameter)) return;
  const auto* const own = optimizer.state_of(parameter);
  std::unique_ptr<torch::optim::OptimizerParamState> blank;
  if (!own && parameter.requires_grad()) blank = optim::blank_state(optimizer.kind(), options, parameter);
  auto* const state = own ? const_cast<torch::optim::OptimizerParamState*>(own) : blank.get();
  if (!state) return;
  for (const auto& field : optimizer.kind().state(*state)) {
    check_is_full(held, optimizer, field);
    const auto value = detail::value_of(field);
    const auto key = "state." + held.name + "." + field.key;
    if (!value) continue;
    if (held.spec && is_like_parameter(field)) {
      result.insert(key, detail::held_value(value->toTensor(), held));
    } else {
      detail::insert_value(result, key, *value);
    }
  }
}

// The dict's entries for one parameter.
struct Entries {
  std::map<std::string, const StateValue*> state;
  std::map<std::string, const StateValue*> options;
};

Value plain(const StateValue& value) { return value.is_tensor() ? Value(value.tensor) : value.value; }

// Returns the entry, or a list of "old_dirs.0" and so on if "old_dirs" itself is not there. Absent if there is neither.
std::optional<Value> entry(const std::map<std::string, const StateValue*>& entries, const std::string& key) {
  const auto found = entries.find(key);
  if (found != entries.end()) return plain(*found->second);
  c10::impl::GenericList list(c10::AnyType::get());
  for (auto item = entries.find(key + ".0"); item != entries.end();
       item = entries.find(key + "." + std::to_string(list.size()))) {
    list.push_back(plain(*item->second));
  }
  return list.empty() ? std::nullopt : std::optional<Value>(list);
}

// Returns "old_dirs" for "old_dirs.0".
std::string without_index(const std::string& key) {
  const auto dot = key.rfind('.');
  return dot != std::string::npos && base::parse_int(key.substr(dot + 1)) ? key.substr(0, dot) : key;
}

class OptimizerReader {
 public:
  OptimizerReader(const ModelShards& parts, Optimizer& optimizer, const ShardedStateDict& state,
                  const StateDictOptions& options)
      : parts_(parts), optimizer_(optimizer), options_(options) {
    for (const auto& item : state) {
      const auto key = detail::split_key(item.key(), parts.names());
      if (!key) continue;
      auto& entries = entries_[key->name];
      (key->section == "state" ? entries.state : entries.options).emplace(key->field, &item.value());
    }
  }

  detail::OptimizerPlan read() {
    const auto& groups = optimizer_.shown().param_groups();
    for (size_t group = 0; group < groups.size(); ++group) {
      plan_.options.push_back(read_options(group));
      const auto& options = plan_.options.back() ? *plan_.options.back() : groups[group].options();
      for (size_t place = 0; place < groups[group].params().size(); ++place) {
        read_state(groups[group].params()[place], parts_.at(groups[group].params()[place], group, place), options);
      }
    }
    TORCH_CHECK(missing_.empty(), "[cohort] ", kSetter,
                ": the state does not fit the optimizer\n\tMissing key(s): ", base::quoted_list(missing_),
                ".\n  hint: set StateDictOptions::strict = false to keep what is missing");
    return {&optimizer_.shown(), &optimizer_.local(), std::move(plan_)};
  }

 private:
  static constexpr const char* kSetter = "set_optimizer_state_dict";

  bool is_left_out(const at::Tensor& parameter) const {
    return options_.ignore_frozen_params && !parameter.requires_grad();
  }

  // Returns null if the options do not change.
  std::unique_ptr<OptimizerOptions> read_options(size_t group) {
    const auto& members = optimizer_.shown().param_groups()[group];
    std::unique_ptr<OptimizerOptions> result;
    std::string first;
    for (size_t place = 0; place < members.params().size(); ++place) {
      const auto& parameter = members.params()[place];
      const auto& held = parts_.at(parameter, group, place);
      if (is_left_out(parameter) || (!options_.strict && entries_[held.name].options.empty())) continue;
      auto options = members.options().clone();
      read_options_of(held, *options);
      if (!result) {
        result = std::move(options);
        first = held.name;
      } else {
        check_same(*result, first, *options);
      }
    }
    return result;
  }

  void read_options_of(const HeldTensor& held, OptimizerOptions& options) {
    const auto& entries = entries_[held.name].options;
    const std::string where = "the options of \"" + held.name + "\"";
    std::unordered_set<std::string> known;
    for (const auto& field : optimizer_.kind().options(options)) {
      known.insert(field.key);
      const auto value = entry(entries, field.key);
      if (value) {
        detail::set_value(field, *value, held.tensor, where, optimizer_.kind().name);
      } else if (options_.strict && !std::holds_alternative<optim::PythonOption>(field.place)) {
        missing_.push_back("param_groups." + held.name + "." + field.key);
      }
    }
    for (const auto& [key, value] : entries) {
      TORCH_CHECK_VALUE(known.contains(key) || !options_.strict || detail::may_be_ignored(key, plain(*value)),
                        "[cohort] ", kSetter, ": ", where, " have ", key, "=", detail::text_of(plain(*value)),
                        ", which ", optimizer_.kind().name,
                        " does not have\n  hint: the state is of another kind of optimizer");
    }
  }

  void check_same(OptimizerOptions& a, const std::string& first, OptimizerOptions& b) const {
    const auto ours = optimizer_.kind().options(a);
    const auto theirs = optimizer_.kind().options(b);
    for (size_t i = 0; i < ours.size(); ++i) {
      const auto one = detail::text_of(*detail::value_of(ours[i]));
      const auto other = detail::text_of(*detail::value_of(theirs[i]));
      TORCH_CHECK(one == other,
                  "All the parameters in the same parameter group should have the same saved param_group value. But ",
                  first, ".", ours[i].key, " is ", one, " while other(s) is ", other, ".");
    }
  }

  void keep_state(const at::Tensor& parameter) {
    const auto* const state = optimizer_.state_of(parameter);
    if (state) plan_.states.emplace_back(parameter, state->clone());
  }

  void read_state(const at::Tensor& parameter, const HeldTensor& held, const OptimizerOptions& options) {
    const auto& entries = entries_[held.name].state;
    if (!optimizer_.owns(parameter)) return;
    if (entries.empty()) {
      check_may_lack_state(held, options);
      if (is_left_out(parameter) || !options_.strict) keep_state(parameter);
      return;
    }
    const std::string where = "the state of \"" + held.name + "\"";
    auto state = optimizer_.kind().make_state();
    std::unordered_set<std::string> known;
    for (const auto& field : optimizer_.kind().state(*state)) {
      known.insert(field.key);
      const auto value = entry(entries, field.key);
      if (!value) {
        const bool is_needed = std::holds_alternative<optim::StepCount>(field.place) && options_.strict;
        if (is_needed) missing_.push_back("state." + held.name + "." + field.key);
        continue;
      }
      if (is_like_parameter(field)) check_sizes(*entries.at(field.key), held, field.key);
      detail::set_value(field, *value, held.tensor, where, optimizer_.kind().name);
      if (is_like_parameter(field)) lay_as(parameter, held, *std::get<at::Tensor*>(field.place));
    }
    for (const auto& [key, value] : entries) {
      TORCH_CHECK_VALUE(known.contains(key) || known.contains(without_index(key)) || !options_.strict, "[cohort] ",
                        kSetter, ": ", where, " has \"", key, "\", which ", optimizer_.kind().name,
                        " does not have\n  hint: the state is of another kind of optimizer");
    }
    state = detail::checked_state(optimizer_.kind(), options, std::move(state), where);
    if (state) plan_.states.emplace_back(parameter, std::move(state));
  }

  // For a DTensor the optimizer keeps DTensors.
  static void lay_as(const at::Tensor& parameter, const HeldTensor& held, at::Tensor& tensor) {
    if (!is_dtensor(parameter) || !tensor.defined()) return;
    const mesh::ShardSpec spec(held.spec->mesh(), held.spec->placements(), held.sizes, tensor.scalar_type());
    tensor = DTensor(tensor, spec);
  }

  // As in PyTorch, except if no parameter has a state: then the optimizer has not made a step.
  void check_may_lack_state(const HeldTensor& held, const OptimizerOptions& options) const {
    if (!options_.strict || held.is_frozen) return;
    const bool is_needed = optimizer_.kind().tensors && !optimizer_.kind().tensors(options).empty();
    const bool have_others =
        std::any_of(entries_.begin(), entries_.end(), [](const auto& other) { return !other.second.state.empty(); });
    TORCH_CHECK(
        !is_needed || !have_others, "Missing optimizer state for parameter '", held.name,
        "' in checkpoint. The parameter requires gradients but has no saved optimizer state. To load anyway, use "
        "StateDictOptions(strict=False).");
  }

  static void check_sizes(const StateValue& value, const HeldTensor& held, const std::string& key) {
    if (!value.is_tensor()) return;
    const auto sizes = value.is_shard() ? value.spec->shape() : value.tensor.sizes().vec();
    TORCH_CHECK_VALUE(sizes == held.sizes, "[cohort] size mismatch for \"", key, "\" in the state of \"", held.name,
                      "\": the checkpoint has shape ", at::IntArrayRef(sizes), ", the parameter has shape ",
                      at::IntArrayRef(held.sizes),
                      "\n  hint: construct model and optimizer as in the run that was saved");
  }

  const ModelShards& parts_;
  const DividedOptimizer optimizer_;
  const StateDictOptions& options_;
  std::unordered_map<std::string, Entries> entries_;
  std::vector<std::string> missing_;
  detail::LoadedOptimizer plan_;
};

ShardedStateDict with_canonical_keys(const ShardedStateDict& state, const detail::Names& names) {
  ShardedStateDict result;
  for (const auto& item : state) {
    const auto key = detail::split_key(item.key(), names);
    if (key && !result.contains(key->text())) result.insert(key->text(), item.value());
  }
  return result;
}

// If there is nothing under the parameter's own name in this section, takes the entries of its first other name that has some.
void take_from_other_names(const HeldTensor& held, const std::string& section, const ShardedStateDict& given,
                           ShardedStateDict& result) {
  const auto has_own = [&] {
    return std::any_of(result.begin(), result.end(), [&](const auto& item) {
      const auto key = detail::split_key(item.key(), {held.name});
      return key && key->section == section;
    });
  };
  for (const std::string& name : held.other_names) {
    if (has_own()) return;
    for (const auto& item : with_canonical_keys(given, {name})) {
      auto key = *detail::split_key(item.key(), {name});
      if (key.section != section) continue;
      key.name = held.name;
      result.insert(key.text(), item.value());
    }
  }
}

// Notes the other keys of tied parameters. The state's keys have the parameters' own names.
void note_other_names(const ModelShards& parts, ShardedStateDict& state) {
  for (const HeldTensor& held : parts.tensors()) {
    if (held.other_names.empty()) continue;
    for (auto& item : state) {
      const auto key = detail::split_key(item.key(), {held.name});
      if (!key) continue;
      auto& tied = item.value().tied = {.own = item.key()};
      for (const std::string& name : held.other_names) {
        tied.others.push_back(detail::OptimizerKey{key->section, name, key->field}.text());
      }
    }
  }
}

// Returns the wanted shards for values with the parameters' sizes; other values are wanted as full tensors.
detail::WantedValues wanted_values(const ModelShards& parts, const OptimizerList& optimizers) {
  detail::WantedValues wanted;
  for (auto* const each : optimizers) {
    const DividedOptimizer optimizer(*each);
    const auto state = optimizer.kind().make_state();
    const auto fields = optimizer.kind().state(*state);
    for (const auto& group : optimizer.shown().param_groups()) {
      for (const auto& parameter : group.params()) {
        const auto* const held = parts.find(parameter);
        for (const auto& field : held ? fields : optim::Fields()) {
          const auto spec = is_like_parameter(field) ? held->spec : std::nullopt;
          wanted.emplace("state." + held->name + "." + field.key,
                         detail::Wanted{spec, held->sizes, optimizer.owns(parameter)});
        }
      }
    }
  }
  return wanted;
}

}  // namespace

namespace detail {

void insert_value(ShardedStateDict& state, const std::string& key, const Value& value) {
  const auto has_tensors = [&] {
    const auto items = value.toListRef();
    return std::any_of(items.begin(), items.end(), [](const Value& item) { return item.isTensor() || item.isNone(); });
  };
  if (value.isTensor()) {
    state.insert(key, StateValue(value.toTensor()));
  } else if (value.isList() && has_tensors()) {
    const auto items = value.toListRef();
    for (size_t i = 0; i < items.size(); ++i) insert_value(state, key + "." + std::to_string(i), items[i]);
  } else if (!value.isList() || !value.toListRef().empty()) {
    state.insert(key, StateValue(value));
  }
}

void OptimizerPlan::commit() {
  for (size_t i = 0; i < loaded.options.size(); ++i) {
    if (loaded.options[i]) shown->param_groups()[i].set_options(std::move(loaded.options[i]));
  }
  loaded.options.clear();
  loaded.commit(*local);
}

std::optional<OptimizerKey> split_key(const std::string& key, const Names& names) {
  const auto begin = key.find('.');
  if (begin == std::string::npos) return std::nullopt;
  const std::string section = key.substr(0, begin);
  if (section != "state" && section != "param_groups") return std::nullopt;
  for (auto dot = key.rfind('.'); dot != std::string::npos && dot > begin; dot = key.rfind('.', dot - 1)) {
    const std::string name = key.substr(begin + 1, dot - begin - 1);
    for (const std::string& known : {name, canonical_names({name}, names).front()}) {
      if (names.contains(known)) return OptimizerKey{section, known, key.substr(dot + 1)};
    }
  }
  return std::nullopt;
}

ShardedStateDict own_optimizer_state(const torch::nn::Module& model, const OptimizerList& optimizers,
                                     const StateDictOptions& options) {
  const ModelShards parts(model);
  ShardedStateDict states;
  ShardedStateDict groups;
  for (auto* const each : optimizers) {
    const DividedOptimizer optimizer(*each);
    for (size_t group = 0; group < optimizer.shown().param_groups().size(); ++group) {
      const auto& members = optimizer.shown().param_groups()[group];
      for (size_t place = 0; place < members.params().size(); ++place) {
        const auto& parameter = members.params()[place];
        const auto& held = parts.at(parameter, group, place);
        if (options.ignore_frozen_params && !parameter.requires_grad()) continue;
        get_state_of(held, parameter, members.options(), optimizer, states);
        for (const auto& field : optimizer.kind().options(const_cast<OptimizerOptions&>(members.options()))) {
          groups.insert("param_groups." + held.name + "." + field.key, StateValue(*detail::value_of(field)));
        }
      }
    }
  }
  for (auto& item : groups) states.insert(item.key(), std::move(item.value()));
  note_other_names(parts, states);
  return states;
}

ShardedStateDict optimizer_state_for(const char* function, const torch::nn::Module& model,
                                     const OptimizerList& optimizers, const StateDictOptions& options) {
  const bool is_divided = std::any_of(optimizers.begin(), optimizers.end(), [](auto* const optimizer) {
    return dynamic_cast<ZeroRedundancyOptimizer*>(optimizer) != nullptr;
  });
  auto participants = sharers_of(model);
  add_sharers_of(optimizers, participants);
  if (options.full_state_dict && is_divided) participants.by_options = group_of(options);
  ShardedStateDict state;
  std::optional<c10::Device> varies_on;
  agree({function, kNoState, options, std::move(participants)}, [&] {
    state = own_optimizer_state(model, optimizers, options);
    if (is_divided) varies_on = ModelShards(model).device();
    const bool has_shards =
        std::any_of(state.begin(), state.end(), [](const auto& item) { return item.value().is_shard(); });
    TORCH_CHECK_NOT_IMPLEMENTED(
        !is_divided || !options.full_state_dict || !has_shards, "[cohort] ", function,
        ": the state of a ZeroRedundancyOptimizer cannot be gathered if ranks have shards of the parameters, as with "
        "tensor parallelism\n  hint: leave full_state_dict out: then each rank has its own state, which save_sharded() "
        "writes");
    return options.full_state_dict ? shards_of(state) : comm::Facts();
  });
  return gathered(std::move(state), options, varies_on);
}

Incoming incoming_optimizers(const ModelShards& parts, const OptimizerList& optimizers, const ShardedStateDict& given) {
  Incoming incoming{with_canonical_keys(given, parts.names()), wanted_values(parts, optimizers)};
  for (const auto& held : parts.tensors()) {
    for (const char* const section : {"state", "param_groups"}) {
      take_from_other_names(held, section, given, incoming.state);
    }
  }
  return incoming;
}

std::vector<OptimizerPlan> plan_optimizers(const ModelShards& parts, const OptimizerList& optimizers,
                                           const ShardedStateDict& state, const StateDictOptions& options) {
  std::vector<OptimizerPlan> plans;
  for (auto* const optimizer : optimizers) plans.push_back(OptimizerReader(parts, *optimizer, state, options).read());
  return plans;
}

}  // namespace detail

ShardedStateDict get_optimizer_state_dict(const torch::nn::Module& model, const OptimizerList& optimizers,
                                          const StateDictOptions& options) {
  return detail::optimizer_state_for("get_optimizer_state_dict", model, optimizers, options);
}

}  // namespace cohort::checkpoint
