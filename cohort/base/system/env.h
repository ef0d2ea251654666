/// The environment: the only place in Cohort that reads it.
///
/// Thread-safety: reading is safe; set_env and unset_env are not safe beside readers in other threads.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <string>

#include "cohort/base/error/result.h"

namespace cohort::base {

/// Returns the variable's value; nothing if it is not set. A variable set to "" has the value "".
std::optional<std::string> get_env(const char* name);
void set_env(const char* name, const std::string& value);
void unset_env(const char* name);

/// Every variable of this process.
std::map<std::string, std::string> environment();

/// Returns the variable as an integer; nothing if it is not set.
/// Errors quote name and value: `environment variable WORLD_SIZE="two" is not an integer`.
Result<std::optional<long long>> env_int(const char* name, long long min = std::numeric_limits<long long>::min(),
                                         long long max = std::numeric_limits<long long>::max());

/// As env_int, for a variable that must be set.
Result<long long> required_env_int(const char* name, long long min = std::numeric_limits<long long>::min(),
                                   long long max = std::numeric_limits<long long>::max());

/// Returns true for 1, true, yes, on, y, t and false for 0, false, no, off, n, f and "" in any case.
Result<std::optional<bool>> env_bool(const char* name);

}  // namespace cohort::base
