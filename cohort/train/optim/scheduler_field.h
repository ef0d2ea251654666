/// SchedulerField: an entry of a scheduler's state dict, written and read. Constructed while the state dict is made or loaded.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::optim {

struct SchedulerField {
  /// What a value that was read does once all others were read, too.
  using Commit = std::function<void()>;

  std::string key;
  std::function<c10::IValue()> write;
  /// Changes nothing. `where`: "[cohort] StepLR::load_state_dict: \"gamma\" of the state". Throws c10::ValueError.
  std::function<Commit(const c10::IValue& value, const std::string& where)> read;
};

SchedulerField number_field(std::string key, double& number);
SchedulerField number_field(std::string key, int64_t& number);
/// A whole number, of which less than `minimum` is no setting.
SchedulerField count_field(std::string key, int64_t& count, int64_t minimum);
/// Written as an int where it is whole.
SchedulerField epochs_field(std::string key, double& epochs, double minimum);
SchedulerField flag_field(std::string key, bool& flag);
/// A list of numbers; `size`: as many as that, the number of parameter groups.
SchedulerField numbers_field(std::string key, std::vector<double>& numbers, size_t size);
SchedulerField numbers_field(std::string key, std::vector<int64_t>& numbers);
/// Written and not read: what decides nothing here.
SchedulerField constant_field(std::string key, c10::IValue value);

/// Parts of `read`.
double number_of(const c10::IValue& value, const std::string& where);
int64_t whole_number_of(const c10::IValue& value, const std::string& where);
/// Items of a list or tuple.
std::vector<c10::IValue> items_of(const c10::IValue& value, const std::string& where);
/// The place of the text among `words`.
size_t word_of(const c10::IValue& value, const std::vector<const char*>& words, const std::string& where);

/// A choice: `words` are Python's, in the order of the enumeration.
template <class Choice>
SchedulerField word_field(std::string key, Choice& choice, const std::vector<const char*>& words) {
  return {std::move(key), [&choice, words] { return c10::IValue(std::string(words[static_cast<size_t>(choice)])); },
          [&choice, words](const c10::IValue& value, const std::string& where) -> SchedulerField::Commit {
            const auto chosen = static_cast<Choice>(word_of(value, words, where));
            return [&choice, chosen] { choice = chosen; };
          }};
}

}  // namespace cohort::optim
