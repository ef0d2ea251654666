#include "cohort/base/numbers/given_count.h"

#include <fmt/format.h>

namespace cohort::base {

std::optional<std::string> count_error(std::initializer_list<GivenCount> options) {
  for (const auto& [name, value] : options) {
    if (value.value_or(1) >= 1) continue;
    return fmt::format("{} is at least 1, but got {}\n  hint: leave it out, or set it to std::nullopt", name, *value);
  }
  return std::nullopt;
}

}  // namespace cohort::base
