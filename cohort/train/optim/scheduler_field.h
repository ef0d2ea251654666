/// SchedulerField: an entry of a scheduler's state dict, with functions that write and read it. It lives only while a state dict
/// is made or loaded.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::optim {

struct SchedulerField {
  /// Sets a value that was read, after all others were read, too.
  using Commit = std::function<void()>;

  std::string key;
  std::function<c10::IValue()> write;
  /// Reads without changing anything. `where`: "[cohort] StepLR::load_state_dict: \"gamma\" of the state". Throws
  /// c10::ValueError.
  std::function<Commit(const c10::IValue& value, const std::string& where)> read;
};

SchedulerField number_field(std::string key, double& number);
SchedulerField number_field(std::string key, int64_t& number);
/// An integer of at least `minimum`.
SchedulerField count_field(std::string key, int64_t& count, int64_t minimum);
/// Written as an int if it is an integer.
SchedulerField epochs_field(std::string key, double& epochs, double minimum);
SchedulerField flag_field(std::string key, bool& flag);
/// A list of numbers; `size`: the expected length, the number of parameter groups.
SchedulerField numbers_field(std::string key, std::vector<double>& numbers, size_t size);
SchedulerField numbers_field(std::string key, std::vector<int64_t>& numbers);
/// Written but not read, as it has no effect here.
SchedulerField constant_field(std::string key, c10::IValue value);

/// Functions for `read`.
double number_of(const c10::IValue& value, const std::string& where);
int64_t whole_number_of(const c10::IValue& value, const std::string& where);
/// Returns the items of a list or tuple.
std::vector<c10::IValue> items_of(const c10::IValue& value, const std::string& where);
/// Returns the index of the text in `words`.
size_t word_of(const c10::IValue& value, const std::vector<const char*>& words, const std::string& where);

/// A choice. `words`: Python's names in the order of the enumeration.
template <class Choice>
SchedulerField word_field(std::string key, Choice& choice, const std::vector<const char*>& words) {
  return {std::move(key), [&choice, words] { return c10::IValue(std::string(words[static_cast<size_t>(choice)])); },
          [&choice, words](const c10::IValue& value, const std::string& where) -> SchedulerField::Commit {
            const auto chosen = static_cast<Choice>(word_of(value, words, where));
            return [&choice, chosen] { choice = chosen; };
          }};
}

}  // namespace cohort::optim
