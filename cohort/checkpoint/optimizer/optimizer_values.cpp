#include "cohort/checkpoint/optimizer/optimizer_values.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <variant>

#include "cohort/checkpoint/optimizer/scheduler_notes.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"

namespace cohort::checkpoint::detail {
namespace {

using optim::Field;
using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;
using Value = c10::IValue;

using TensorList = std::vector<at::Tensor>;

constexpr double kMaxWhole = 9007199254740992;  // up to this a double represents every whole number

std::optional<Value> tensor_value(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<Value>(tensor.detach()) : std::nullopt;
}

struct ToValue {
  template <class T>
  std::optional<Value> operator()(T* place) const {
    return Value(*place);
  }
  std::optional<Value> operator()(std::tuple<double, double>* place) const {
    return Value(c10::ivalue::Tuple::create({std::get<0>(*place), std::get<1>(*place)}));
  }
  std::optional<Value> operator()(std::optional<int64_t>* place) const { return *place ? Value(**place) : Value(); }
  std::optional<Value> operator()(std::optional<std::string>* place) const { return *place ? Value(**place) : Value(); }
  std::optional<Value> operator()(const optim::StepCount& place) const {
    return Value(at::scalar_tensor(static_cast<double>(*place.value), at::kFloat));
  }
  std::optional<Value> operator()(at::Tensor* place) const { return tensor_value(*place); }
  std::optional<Value> operator()(const optim::FreeTensor& place) const { return tensor_value(*place.value); }
  std::optional<Value> operator()(std::deque<at::Tensor>* place) const {
    c10::List<at::Tensor> list;
    for (const auto& tensor : *place) list.push_back(tensor.detach());
    return Value(list);
  }
  std::optional<Value> operator()(std::optional<TensorList>* place) const {
    if (!*place) return std::nullopt;
    c10::impl::GenericList list(c10::AnyType::get());
    for (const auto& tensor : **place) list.push_back(tensor.defined() ? Value(tensor.detach()) : Value());
    return Value(list);
  }
  std::optional<Value> operator()(const optim::PythonOption& option) const { return option.value; }
};

// Reads a number, or a tensor of one element, such as a learning rate that a compiled step can change.
std::optional<Value> number_in(const Value& value) {
  if (value.isInt() || value.isDouble() || value.isBool()) return value;
  if (!value.isTensor() || !value.toTensor().defined() || value.toTensor().numel() != 1) return std::nullopt;
  const auto number = value.toTensor().item();
  if (number.isBoolean()) return Value(number.toBool());
  if (number.isIntegral(/*includeBool=*/false)) return Value(number.toLong());
  return number.isFloatingPoint() ? std::optional<Value>(number.toDouble()) : std::nullopt;
}

bool is_true(const Value& value) { return !(value.isNone() || (value.isBool() && !value.toBool())); }

class FromValue {
 public:
  FromValue(const Field& field, const Value& value, const at::Tensor& parameter, const std::string& where,
            const std::string& kind)
      : field_(field), value_(value), parameter_(parameter), where_(where), kind_(kind) {}

  void operator()(double* place) const { *place = as_double(value_); }
  void operator()(int64_t* place) const { *place = as_int(); }
  void operator()(bool* place) const {
    const auto number = number_in(value_);
    require(number && (number->isBool() || number->isInt()), "True or False");
    *place = number->isBool() ? number->toBool() : number->toInt() != 0;
  }
  void operator()(std::tuple<double, double>* place) const {
    std::vector<Value> both;
    if (value_.isTuple()) both = value_.toTupleRef().elements().vec();
    if (value_.isList()) both = value_.toListRef().vec();
    require(both.size() == 2, "two numbers");
    *place = {as_double(both[0]), as_double(both[1])};
  }
  void operator()(std::optional<int64_t>* place) const {
    *place = value_.isNone() ? std::nullopt : std::optional(as_int());
  }
  void operator()(std::optional<std::string>* place) const {
    require(value_.isNone() || value_.isString(), "a text or None");
    *place = value_.isNone() ? std::nullopt : std::optional(value_.toStringRef());
  }
  void operator()(const optim::StepCount& place) const { *place.value = as_int(); }
  void operator()(at::Tensor* place) const {
    if (value_.isNone()) return;
    require(value_.isTensor(), "a tensor");
    const auto& from = value_.toTensor();
    TORCH_CHECK_VALUE(from.sizes() == parameter_.sizes(), "[cohort] size mismatch for \"", field_.key, "\" in ", where_,
                      ": the checkpoint has shape ", from.sizes(), ", the parameter has shape ", parameter_.sizes(),
                      "\n  hint: construct model and optimizer as in the run that was saved");
    *place = at::empty_like(parameter_.detach());
    const c10::AutoGradMode no_grad(false);
    place->copy_(from);
  }
  void operator()(const optim::FreeTensor& place) const {
    if (!value_.isNone()) *place.value = moved(value_);
  }
  void operator()(std::deque<at::Tensor>* place) const {
    place->clear();
    for (const Value& item : items()) place->push_back(moved(item));
  }
  void operator()(std::optional<TensorList>* place) const {
    place->reset();
    if (value_.isNone()) return;
    place->emplace();
    for (const Value& item : items()) (*place)->push_back(item.isNone() ? at::Tensor() : moved(item));
  }
  void operator()(const optim::PythonOption& option) const {
    const bool is_same =
        option.accepts_all || text_of(value_) == text_of(option.value) || (!is_true(value_) && !is_true(option.value));
    TORCH_CHECK_VALUE(
        is_same, "[cohort] ", where_, " of the checkpoint has ", field_.key, "=", text_of(value_), ", but this ", kind_,
        " only knows ", field_.key, "=", text_of(option.value),
        field_.key == "decoupled_weight_decay"
            ? "\n  hint: use AdamW, which is Adam with decoupled_weight_decay=True"
            : "\n  hint: go on with it in Python, or construct another optimizer and leave its state out");
  }

 private:
  void require(bool condition, const char* what) const {
    TORCH_CHECK_VALUE(condition, "[cohort] \"", field_.key, "\" in ", where_, " of the checkpoint is ", text_of(value_),
                      ", not ", what);
  }
  double as_double(const Value& value) const {
    const auto number = number_in(value);
    require(number.has_value(), "a number");
    if (number->isDouble()) return number->toDouble();
    return number->isBool() ? static_cast<double>(number->toBool()) : static_cast<double>(number->toInt());
  }
  int64_t as_int() const {
    const auto number = as_double(value_);
    require(std::abs(number) <= kMaxWhole && number == std::trunc(number), "a whole number");
    return static_cast<int64_t>(number);
  }
  std::vector<Value> items() const {
    require(value_.isList(), "a list of tensors");
    return value_.toListRef().vec();
  }
  // Follows Python's Optimizer._process_value_according_to_param_policy.
  at::Tensor moved(const Value& value) const {
    require(value.isTensor(), "a tensor");
    const auto dtype = parameter_.is_floating_point() ? parameter_.scalar_type() : value.toTensor().scalar_type();
    return value.toTensor().detach().to(parameter_.device(), dtype, /*non_blocking=*/false, /*copy=*/true);
  }

  const Field& field_;
  const Value& value_;
  const at::Tensor& parameter_;
  const std::string& where_;
  const std::string& kind_;
};

}  // namespace

std::optional<Value> value_of(const Field& field) { return std::visit(ToValue(), field.place); }

void set_value(const Field& field, const Value& value, const at::Tensor& parameter, const std::string& where,
               const std::string& kind) {
  std::visit(FromValue(field, value, parameter, where, kind), field.place);
}

bool may_be_ignored(const std::string& option, const Value& value) {
  return !is_true(value) || option == "param_names" || is_scheduler_note(option);
}

std::string text_of(const Value& value) {
  if (value.isNone()) return "None";
  if (value.isBool()) return value.toBool() ? "True" : "False";
  if (value.isInt()) return fmt::format("{}", value.toInt());
  if (value.isDouble()) return fmt::format("{}", value.toDouble());
  if (value.isString()) return fmt::format("'{}'", value.toStringRef());
  if (value.isTensor()) {
    if (!value.toTensor().defined()) return "an undefined tensor";
    const auto number = number_in(value);
    return number ? "tensor(" + text_of(*number) + ")" : c10::str("a tensor of shape ", value.toTensor().sizes());
  }
  if (!value.isTuple() && !value.isList()) return "a " + value.tagKind();
  std::string text;
  const auto items = value.isTuple() ? value.toTupleRef().elements().vec() : value.toListRef().vec();
  for (const Value& item : items) text += (text.empty() ? "" : ", ") + text_of(item);
  return value.isTuple() ? "(" + text + ")" : "[" + text + "]";
}

std::unique_ptr<OptimizerParamState> checked_state(const optim::OptimizerKind& kind, const OptimizerOptions& options,
                                                   std::unique_ptr<OptimizerParamState> state,
                                                   const std::string& where) {
  const auto fields = kind.state(*state);
  const auto is_empty = [](const Field& field) {
    auto* const* const tensor = std::get_if<at::Tensor*>(&field.place);
    return tensor && !(*tensor)->defined();
  };
  if (std::all_of(fields.begin(), fields.end(), is_empty)) return nullptr;
  for (const std::string& key : kind.tensors ? kind.tensors(options) : std::vector<std::string>()) {
    const bool is_missing = std::any_of(fields.begin(), fields.end(),
                                        [&](const Field& field) { return field.key == key && is_empty(field); });
    TORCH_CHECK_VALUE(!is_missing, "[cohort] ", where, " of the checkpoint has no \"", key, "\", which ", kind.name,
                      " needs with the options of its group\n  hint: the checkpoint is of another kind of optimizer, "
                      "or was made with other options");
  }
  return state;
}

const optim::OptimizerKind& kind_of(const Optimizer& optimizer) {
  const auto* const kind = optim::find_optimizer_kind(optimizer);
  TORCH_CHECK_NOT_IMPLEMENTED(kind, "[cohort] the state of this kind of optimizer is not known; known are ",
                              optim::known_optimizer_kinds(),
                              "\n  hint: describe the state with cohort::optim::register_optimizer_kind, or store it "
                              "with torch::save(optimizer, path)");
  return *kind;
}

void LoadedOptimizer::commit(Optimizer& optimizer) {
  for (size_t i = 0; i < options.size(); ++i) {
    if (options[i]) optimizer.param_groups()[i].set_options(std::move(options[i]));
  }
  optimizer.state().clear();
  for (auto& [parameter, state] : states) optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
}

const Optimizer& full_optimizer_of(const Optimizer& optimizer) {
  const auto* const divided = dynamic_cast<const ZeroRedundancyOptimizer*>(&optimizer);
  return divided ? divided->state_dict() : optimizer;
}

void load_full(Optimizer& optimizer, const std::function<void(Optimizer& full)>& load) {
  auto* const divided = dynamic_cast<ZeroRedundancyOptimizer*>(&optimizer);
  if (!divided) return load(optimizer);
  const auto full = divided->full_optimizer();
  load(*full);
  divided->load_state_dict(*full);
}

}  // namespace cohort::checkpoint::detail
