/// Counts and durations that a user may leave out, but not give as 0 or less.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

namespace cohort::base {

struct GivenCount {
  GivenCount(const char* option, std::optional<int64_t> count) : name(option), value(count) {}
  /// Counts milliseconds.
  GivenCount(const char* option, std::optional<std::chrono::milliseconds> time) : name(option) {
    if (time) value = time->count();
  }

  const char* name;
  std::optional<int64_t> value;
};

/// Returns an error's text, with a hint, about the first option that is below 1; nullopt if all fit.
std::optional<std::string> count_error(std::initializer_list<GivenCount> options);

}  // namespace cohort::base
