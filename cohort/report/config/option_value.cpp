#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "cohort/base/text/text.h"
#include "cohort/report/config/option_set.h"

namespace cohort::report {
namespace {

using base::Error;
using base::Result;

Result<void> check_limits(const ValueLimits& limits, double value) {
  const bool is_right = !(limits.min && !(value >= *limits.min)) && !(limits.max && !(value <= *limits.max)) &&
                        !(limits.above && !(value > *limits.above)) && !(limits.below && !(value < *limits.below));
  if (is_right) return {};
  return Error("must be " + limits_text(limits));
}

Result<void> check_limits(const ValueLimits& limits, const std::string& value) {
  if (limits.choices.empty()) return {};
  for (const std::string& choice : limits.choices) {
    if (choice == value) return {};
  }
  return Error("must be " + limits_text(limits) + base::did_you_mean(value, limits.choices));
}

Result<int64_t> scalar_as(const TomlScalar& scalar, const int64_t*) {
  if (const auto* integer = std::get_if<int64_t>(&scalar)) return *integer;
  return Error("expected a whole number");
}

Result<int> scalar_as(const TomlScalar& scalar, const int*) {
  const auto* integer = std::get_if<int64_t>(&scalar);
  if (!integer) return Error("expected a whole number");
  if (*integer != static_cast<int>(*integer)) return Error("is too large");
  return static_cast<int>(*integer);
}

Result<double> scalar_as(const TomlScalar& scalar, const double*) {
  if (const auto* integer = std::get_if<int64_t>(&scalar)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&scalar)) return *number;
  return Error("expected a number");
}

Result<std::string> scalar_as(const TomlScalar& scalar, const std::string*) {
  if (const auto* text = std::get_if<std::string>(&scalar)) return *text;
  return Error("expected a text in quotes");
}

// Checks and converts a value without changing the variable.
template <typename T>
Result<T> checked_scalar(const ValueLimits& limits, const TomlScalar& scalar) {
  Result<T> value = scalar_as(scalar, static_cast<const T*>(nullptr));
  if (!value) return value;
  Result<void> checked;
  if constexpr (std::is_arithmetic_v<T>) {
    checked = check_limits(limits, static_cast<double>(*value));
  } else {
    checked = check_limits(limits, *value);
  }
  if (!checked) return checked.error();
  return value;
}

Result<void> assign(bool& target, const ValueLimits&, const TomlValue& value) {
  const auto* scalar = std::get_if<TomlScalar>(&value);
  const auto* truth = scalar ? std::get_if<bool>(scalar) : nullptr;
  if (!truth) return Error("expected true or false");
  target = *truth;
  return {};
}

template <typename T>
Result<void> assign(T& target, const ValueLimits& limits, const TomlValue& value) {
  const auto* scalar = std::get_if<TomlScalar>(&value);
  if (!scalar) return Error("expected one value, not a list");
  auto checked = checked_scalar<T>(limits, *scalar);
  if (!checked) return checked.error();
  target = std::move(checked).value();
  return {};
}

template <typename T>
Result<void> assign(std::vector<T>& target, const ValueLimits& limits, const TomlValue& value) {
  const auto* list = std::get_if<TomlList>(&value);
  if (!list) return Error("expected a list, such as [1, 2]");
  std::vector<T> values;
  for (const TomlScalar& scalar : *list) {
    auto checked = checked_scalar<T>(limits, scalar);
    if (!checked) return checked.error();
    values.push_back(std::move(checked).value());
  }
  target = std::move(values);
  return {};
}

TomlScalar scalar_of(int value) { return static_cast<int64_t>(value); }
template <typename T>
TomlScalar scalar_of(const T& value) {
  return value;
}

template <typename T>
TomlValue toml_of(const T& value) {
  return scalar_of(value);
}
template <typename T>
TomlValue toml_of(const std::vector<T>& values) {
  TomlList list;
  for (const T& value : values) list.push_back(scalar_of(value));
  return list;
}

// Reads a word of the command line. If it is not a number it stays a text, which is refused if the option needs a number.
TomlScalar word_as(const std::string& word, bool is_text) {
  if (is_text) return word;
  const auto number = parse_toml_number(word.starts_with(".") ? "0" + word : word);
  return number ? *number : TomlScalar(word);
}

bool is_list(const OptionTarget& target) { return target.index() >= 5; }
bool is_text(const OptionTarget& target) {
  return std::holds_alternative<std::string*>(target) || std::holds_alternative<std::vector<std::string>*>(target);
}

}  // namespace

std::string kind_of(const OptionTarget& target) {
  static constexpr const char* kKinds[] = {"",     "WHOLE",     "WHOLE",      "NUMBER",
                                           "TEXT", "WHOLE,...", "NUMBER,...", "TEXT,..."};
  static_assert(std::size(kKinds) == std::variant_size_v<OptionTarget>);
  return kKinds[target.index()];
}

TomlValue value_of(const OptionTarget& target) {
  return std::visit([](const auto* variable) { return toml_of(*variable); }, target);
}

Result<void> set_value(const ProgramOption& option, const TomlValue& value) {
  return std::visit([&](auto* variable) { return assign(*variable, option.limits, value); }, option.target);
}

Result<TomlValue> parse_flag_value(const ProgramOption& option, const std::string& text) {
  if (std::holds_alternative<bool*>(option.target)) {
    const auto truth = base::parse_bool(text);
    if (!truth) return Error("expected true or false");
    return TomlValue(TomlScalar(*truth));
  }
  if (!is_list(option.target)) return TomlValue(word_as(text, is_text(option.target)));
  TomlList list;
  if (text.empty()) return TomlValue(list);
  for (const std::string& word : base::split(text, ',')) list.push_back(word_as(word, is_text(option.target)));
  return TomlValue(list);
}

std::string limits_text(const ValueLimits& limits) {
  std::vector<std::string> parts;
  if (limits.min) parts.push_back("at least " + number_text(*limits.min));
  if (limits.above) parts.push_back("above " + number_text(*limits.above));
  if (limits.max) parts.push_back("at most " + number_text(*limits.max));
  if (limits.below) parts.push_back("below " + number_text(*limits.below));
  if (!limits.choices.empty()) parts.push_back("one of " + base::quoted_list(limits.choices));
  return base::join(parts, " and ");
}

}  // namespace cohort::report
