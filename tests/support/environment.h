/// Environment variables for one test.
#pragma once

#include <map>
#include <string>

#include "cohort/base/system/env.h"

namespace cohort::test {

/// Sets variables, and unsets them at its end.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) : variables_(variables) {
    for (const auto& [name, value] : variables_) base::set_env(name.c_str(), value);
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) base::unset_env(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::string> variables_;
};

}  // namespace cohort::test
