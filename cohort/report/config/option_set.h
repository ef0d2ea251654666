/// OptionSet: a program's options, from a TOML file and from flags (train/config/run_config.h describes both).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/report/config/toml.h"
#include "cohort/report/records/run_record.h"

namespace cohort::report {

struct ValueLimits {
  std::optional<double> min, above, max, below;
  std::vector<std::string> choices;
};

using OptionTarget = std::variant<bool*, int64_t*, int*, double*, std::string*, std::vector<int64_t>*,
                                  std::vector<double>*, std::vector<std::string>*>;

struct ProgramOption {
  std::string name;
  OptionTarget target;
  std::string help;
  ValueLimits limits;
  bool is_given = false;
};

/// Returns "WHOLE", "NUMBER", "TEXT", "WHOLE,..."; "" for a bool.
std::string kind_of(const OptionTarget& target);
TomlValue value_of(const OptionTarget& target);
/// Sets the value. Errors are "expected a whole number", "must be at least 1".
base::Result<void> set_value(const ProgramOption& option, const TomlValue& value);
/// Parses the value of a flag as the option's kind.
base::Result<TomlValue> parse_flag_value(const ProgramOption& option, const std::string& text);
/// Returns "at least 1, below 10"; "" without limits.
std::string limits_text(const ValueLimits& limits);

/// Thread-safety: one thread at a time.
class OptionSet {
 public:
  OptionSet(std::string program, std::string description);

  void section(const std::string& title) { sections_.push_back({title, options_.size()}); }
  base::Result<void> add(ProgramOption option);
  /// Returns false if the arguments ask for the help.
  base::Result<bool> parse(const std::vector<std::string>& arguments);
  std::string help() const;
  const std::string& program() const { return program_; }
  /// Finds the option by its name, in which "-" and "_" are equal. Returns null if there is none.
  const ProgramOption* find(std::string_view name) const;
  std::string to_toml() const;
  HyperparameterList values() const;

 private:
  struct Section {
    std::string title;
    size_t begin;
  };
  ProgramOption* find_mutable(std::string_view name);
  base::Result<void> read_file(const std::string& path);
  base::Result<void> read_flag(const std::vector<std::string>& arguments, size_t& at);
  base::Error unknown(std::string_view name, std::string_view prefix) const;
  std::string program_, description_;
  std::vector<ProgramOption> options_;
  std::vector<Section> sections_;
};

}  // namespace cohort::report
