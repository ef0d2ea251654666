#include "cohort/train/optim/scheduler_field.h"

#include <c10/util/Exception.h>

#include <cmath>

#include "cohort/checkpoint/optimizer/optimizer_values.h"

namespace cohort::optim {
namespace {

using Commit = SchedulerField::Commit;

constexpr double kMaxWholeEpoch = 9007199254740992;  // a double represents all integers up to this

template <class Value>
Commit assignment(Value& place, Value value) {
  return [&place, value = std::move(value)] { place = value; };
}

}  // namespace

double number_of(const c10::IValue& value, const std::string& where) {
  if (value.isBool()) return value.toBool() ? 1 : 0;
  TORCH_CHECK_VALUE(value.isInt() || value.isDouble(), where, " is ", checkpoint::detail::text_of(value),
                    ", not a number");
  return value.isInt() ? static_cast<double>(value.toInt()) : value.toDouble();
}

int64_t whole_number_of(const c10::IValue& value, const std::string& where) {
  const double number = number_of(value, where);
  TORCH_CHECK_VALUE(number == std::trunc(number) && std::abs(number) <= kMaxWholeEpoch, where, " is ",
                    checkpoint::detail::text_of(value), ", not a whole number");
  return static_cast<int64_t>(number);
}

std::vector<c10::IValue> items_of(const c10::IValue& value, const std::string& where) {
  if (value.isTuple()) return value.toTupleRef().elements().vec();
  TORCH_CHECK_VALUE(value.isList(), where, " is ", checkpoint::detail::text_of(value), ", not a list");
  std::vector<c10::IValue> items;
  for (const c10::IValue& item : value.toList()) items.push_back(item);
  return items;
}

size_t word_of(const c10::IValue& value, const std::vector<const char*>& words, const std::string& where) {
  std::string known;
  for (size_t i = 0; i < words.size(); ++i) {
    if (value.isString() && value.toStringRef() == words[i]) return i;
    known += (known.empty() ? "'" : ", '") + std::string(words[i]) + "'";
  }
  TORCH_CHECK_VALUE(false, where, " is ", checkpoint::detail::text_of(value), ", not one of ", known);
}

SchedulerField number_field(std::string key, double& number) {
  return {std::move(key), [&number] { return c10::IValue(number); },
          [&number](const c10::IValue& value, const std::string& where) {
            return assignment(number, number_of(value, where));
          }};
}

SchedulerField number_field(std::string key, int64_t& number) {
  return {std::move(key), [&number] { return c10::IValue(number); },
          [&number](const c10::IValue& value, const std::string& where) {
            return assignment(number, whole_number_of(value, where));
          }};
}

SchedulerField count_field(std::string key, int64_t& count, int64_t minimum) {
  return {std::move(key), [&count] { return c10::IValue(count); },
          [&count, minimum](const c10::IValue& value, const std::string& where) {
            const int64_t read = whole_number_of(value, where);
            TORCH_CHECK_VALUE(read >= minimum, where, " is ", read, ", less than ", minimum);
            return assignment(count, read);
          }};
}

SchedulerField epochs_field(std::string key, double& epochs, double minimum) {
  const auto write = [&epochs] {
    const bool is_whole = epochs == std::trunc(epochs) && std::abs(epochs) <= kMaxWholeEpoch;
    return is_whole ? c10::IValue(static_cast<int64_t>(epochs)) : c10::IValue(epochs);
  };
  return {std::move(key), write, [&epochs, minimum](const c10::IValue& value, const std::string& where) {
            const double read = number_of(value, where);
            TORCH_CHECK_VALUE(read >= minimum && std::isfinite(read), where, " is ", checkpoint::detail::text_of(value),
                              ", which is not a finite number of at least ", minimum);
            return assignment(epochs, read);
          }};
}

SchedulerField flag_field(std::string key, bool& flag) {
  return {std::move(key), [&flag] { return c10::IValue(flag); },
          [&flag](const c10::IValue& value, const std::string& where) {
            return assignment(flag, number_of(value, where) != 0);
          }};
}

SchedulerField numbers_field(std::string key, std::vector<double>& numbers, size_t size) {
  return {std::move(key), [&numbers] { return c10::IValue(numbers); },
          [&numbers, size](const c10::IValue& value, const std::string& where) {
            std::vector<double> read;
            for (const auto& item : items_of(value, where)) read.push_back(number_of(item, where));
            TORCH_CHECK_VALUE(read.size() == size, where, " is of ", read.size(),
                              " parameter groups, but the optimizer has ", size,
                              "\n  hint: construct the optimizer with the parameter groups of the saved run");
            return assignment(numbers, std::move(read));
          }};
}

SchedulerField numbers_field(std::string key, std::vector<int64_t>& numbers) {
  return {std::move(key), [&numbers] { return c10::IValue(numbers); },
          [&numbers](const c10::IValue& value, const std::string& where) {
            std::vector<int64_t> read;
            for (const auto& item : items_of(value, where)) read.push_back(whole_number_of(item, where));
            return assignment(numbers, std::move(read));
          }};
}

SchedulerField constant_field(std::string key, c10::IValue value) {
  return {std::move(key), [value = std::move(value)] { return value; },
          [](const c10::IValue&, const std::string&) { return [] {}; }};
}

}  // namespace cohort::optim
