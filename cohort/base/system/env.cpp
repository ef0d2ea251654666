#include "cohort/base/system/env.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "cohort/base/text/text.h"

namespace cohort::base {

std::optional<std::string> get_env(const char* name) {
  const char* value = std::getenv(name);
  if (!value) return std::nullopt;
  return std::string(value);
}

void set_env(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

void unset_env(const char* name) { ::unsetenv(name); }

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view line = *entry;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    variables.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return variables;
}

Result<std::optional<long long>> env_int(const char* name, long long min, long long max) {
  const std::optional<std::string> text = get_env(name);
  if (!text) return std::optional<long long>();
  const std::optional<long long> value = parse_int(trim(*text));
  if (!value) return Error(fmt::format("environment variable {}=\"{}\" is not an integer", name, *text));
  if (*value < min || *value > max) {
    constexpr long long kMax = std::numeric_limits<long long>::max();
    const std::string range = max == kMax ? fmt::format("at least {}", min) : fmt::format("from {} to {}", min, max);
    return Error(fmt::format("environment variable {}=\"{}\" must be {}", name, *text, range));
  }
  return value;
}

Result<long long> required_env_int(const char* name, long long min, long long max) {
  Result<std::optional<long long>> value = env_int(name, min, max);
  if (!value) return value.error();
  if (!value->has_value()) return Error(fmt::format("environment variable {} is not set", name));
  return **value;
}

Result<std::optional<bool>> env_bool(const char* name) {
  const std::optional<std::string> text = get_env(name);
  if (!text) return std::optional<bool>();
  const std::optional<bool> value = parse_bool(*text);
  if (!value) return Error(fmt::format("environment variable {}=\"{}\" must be 1 or 0", name, *text));
  return value;
}

}  // namespace cohort::base
