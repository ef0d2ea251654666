#include "cohort/checkpoint/state/python_state.h"

#include <c10/util/Exception.h>

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/base/text/text.h"
#include "cohort/checkpoint/optimizer/optimizer_values.h"
#include "cohort/checkpoint/optimizer/python_values.h"
#include "cohort/checkpoint/state/model_shards.h"
#include "cohort/checkpoint/state/state_plan.h"

namespace cohort::checkpoint {
namespace {

using detail::ModelShards;
using Value = c10::IValue;

constexpr const char* kMetadata = "_metadata";

void check_is_dict_of(const Value& dict, const char* what) {
  TORCH_CHECK_VALUE(dict.isGenericDict(), "[cohort] ", what, " is a dict, not ", detail::text_of(dict));
}

Value full_value(const std::string& key, const StateValue& value) {
  TORCH_CHECK_VALUE(!value.is_shard(), "[cohort] \"", key,
                    "\" of the state dict is a shard of a tensor\n  hint: get it with full_state_dict");
  return value.is_tensor() ? Value(value.tensor) : value.value;
}

at::Tensor tensor_in(const std::string& key, const Value& value) {
  TORCH_CHECK_VALUE(value.isTensor(), "[cohort] \"", key, "\" of the state dict is ", detail::text_of(value),
                    ", not a tensor\n  hint: files often hold a model's state under \"model\" or \"state_dict\"");
  return value.toTensor();
}

// The fields of one parameter from the flat dict, in its order, with lists put together.
class FieldsOfName {
 public:
  void add(const std::string& field, Value value) {
    const auto dot = field.rfind('.');
    const auto index = dot == std::string::npos ? std::nullopt : base::parse_int(field.substr(dot + 1));
    if (!index) {
      fields_.emplace_back(field, std::move(value));
      return;
    }
    const std::string key = field.substr(0, dot);
    if (lists_[key].empty()) fields_.emplace_back(key, Value());
    lists_[key].emplace(*index, std::move(value));
  }
  c10::impl::GenericDict dict() const {
    auto result = detail::empty_dict();
    for (const auto& [key, value] : fields_) {
      const auto list = lists_.find(key);
      if (list == lists_.end()) {
        result.insert(key, value);
        continue;
      }
      c10::impl::GenericList items(c10::AnyType::get());
      for (const auto& [index, item] : list->second) items.push_back(item);
      result.insert(key, items);
    }
    return result;
  }
  bool empty() const { return fields_.empty(); }

 private:
  std::vector<std::pair<std::string, Value>> fields_;
  std::map<std::string, std::map<int64_t, Value>> lists_;
};

struct NamedGroup {
  std::vector<std::string> names;
};

std::vector<NamedGroup> named_groups(const ModelShards& parts, const OptimizerList& optimizers) {
  std::vector<NamedGroup> result;
  for (auto* const optimizer : optimizers) {
    for (size_t group = 0; group < optimizer->param_groups().size(); ++group) {
      result.emplace_back();
      const auto& parameters = optimizer->param_groups()[group].params();
      for (size_t place = 0; place < parameters.size(); ++place) {
        result.back().names.push_back(parts.at(parameters[place], group, place).name);
      }
    }
  }
  return result;
}

void add_parameter(ShardedStateDict& flat, const std::string& name, const Value& group, const Value& state) {
  if (state.isGenericDict()) {
    for (const auto& entry : state.toGenericDict()) {
      detail::insert_value(flat, "state." + name + "." + detail::key_text(entry.key()), entry.value());
    }
  }
  for (const auto& entry : group.toGenericDict()) {
    const auto key = detail::key_text(entry.key());
    if (key != "params") detail::insert_value(flat, "param_groups." + name + "." + key, entry.value());
  }
}

}  // namespace

Value python_dict(const torch::nn::Module& module) {
  const Value dict = python_dict(state_dict(module));
  dict.toGenericDict().insert(kMetadata, state_dict_metadata(module));
  return dict;
}

Value python_dict(const StateDict& state) {
  auto dict = detail::empty_dict();
  for (const auto& item : state) dict.insert(item.key(), item.value());
  return dict;
}

Value python_dict(const data::StateDict& state) {
  auto dict = detail::empty_dict();
  for (const auto& [key, value] : state) dict.insert(key, value);
  return dict;
}

Value python_dict(const ShardedStateDict& state) {
  auto dict = detail::empty_dict();
  for (const auto& item : state) dict.insert(item.key(), full_value(item.key(), item.value()));
  return dict;
}

StateDict tensors_in(const Value& dict) {
  check_is_dict_of(dict, "a state dict");
  StateDict state;
  for (const auto& entry : dict.toGenericDict()) {
    const auto key = detail::key_text(entry.key());
    if (key != kMetadata) state.insert(key, tensor_in(key, entry.value()));
  }
  return state;
}

data::StateDict loader_state_in(const Value& dict) {
  data::StateDict state;
  for (auto& item : tensors_in(dict)) state.emplace(item.key(), item.value());
  return state;
}

ShardedStateDict values_in(const Value& dict) {
  check_is_dict_of(dict, "a state dict");
  ShardedStateDict state;
  for (const auto& entry : dict.toGenericDict()) {
    const Value value = entry.value();
    const auto key = detail::key_text(entry.key());
    if (value.isTensor()) {
      state.insert(key, StateValue(value.toTensor()));
    } else if (key != kMetadata) {
      state.insert(key, StateValue(value));
    }
  }
  return state;
}

Value nested_optimizer_state(const ShardedStateDict& state, const torch::nn::Module& model,
                             const OptimizerList& optimizers, ParameterKeys keys) {
  const ModelShards parts(model);
  std::unordered_map<std::string, FieldsOfName> states;
  std::unordered_map<std::string, FieldsOfName> options;
  for (const auto& item : state) {
    const auto key = detail::split_key(item.key(), parts.names());
    if (!key) continue;
    auto& fields = (key->section == "state" ? states : options)[key->name];
    fields.add(key->field, full_value(item.key(), item.value()));
  }
  const bool has_names = keys == ParameterKeys::kNames;
  c10::impl::GenericDict all(has_names ? c10::TypePtr(c10::StringType::get()) : c10::TypePtr(c10::IntType::get()),
                             c10::AnyType::get());
  c10::impl::GenericList groups(c10::AnyType::get());
  int64_t number = 0;
  for (const auto& group : named_groups(parts, optimizers)) {
    auto dict = group.names.empty() ? detail::empty_dict() : options[group.names.front()].dict();
    c10::impl::GenericList ids(c10::AnyType::get());
    for (const std::string& name : group.names) {
      const Value id = has_names ? Value(name) : Value(number);
      ++number;
      ids.push_back(id);
      if (!states[name].empty()) all.insert(id, states[name].dict());
    }
    dict.insert("params", ids);
    groups.push_back(dict);
  }
  auto result = detail::empty_dict();
  result.insert("state", all);
  result.insert("param_groups", groups);
  return result;
}

ShardedStateDict flat_optimizer_state(const Value& nested, const torch::nn::Module& model,
                                      const OptimizerList& optimizers) {
  check_is_dict_of(nested, "the state dict of an optimizer");
  const auto states = detail::entry_of(nested, "state");
  const auto groups = detail::entry_of(nested, "param_groups");
  TORCH_CHECK_VALUE(groups.isList() && states.isGenericDict(),
                    "[cohort] flat_optimizer_state: the state dict of an optimizer has a dict \"state\" and a list "
                    "\"param_groups\", but this one has ",
                    detail::keys_in_words(nested));
  std::unordered_map<std::string, Value> by_id;
  for (const auto& entry : states.toGenericDict()) by_id.emplace(detail::key_text(entry.key()), entry.value());
  const auto own = named_groups(ModelShards(model), optimizers);
  const auto given = groups.toListRef().vec();
  ShardedStateDict flat;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto ids = given[i].isGenericDict() ? detail::entry_of(given[i], "params") : Value();
    TORCH_CHECK_VALUE(ids.isList(), "[cohort] flat_optimizer_state: parameter group ", i, " has no list \"params\"");
    const auto list = ids.toListRef().vec();
    const bool has_numbers = !list.empty() && list.front().isInt();
    if (has_numbers) {
      TORCH_CHECK_VALUE(given.size() == own.size(), "loaded state dict has a different number of parameter groups");
      TORCH_CHECK_VALUE(
          list.size() == own[i].names.size(),
          "loaded state dict contains a parameter group that doesn't match the size of optimizer's group");
    }
    for (size_t j = 0; j < list.size(); ++j) {
      const auto id = detail::key_text(list[j]);
      add_parameter(flat, has_numbers ? own[i].names[j] : id, given[i], by_id[id]);
    }
  }
  return flat;
}

}  // namespace cohort::checkpoint
