/// What torchrun's command line accepts beyond CLI11's: underscores for dashes, unique beginnings of a flag, and a
/// program after which every word is the program's own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::cli {

struct Flag {
  /// "--log-dir", "-t".
  std::string name;
  bool takes_value = true;
};

/// A flag as somebody gave it, in full spelling.
struct GivenFlag {
  std::string name;
  /// Absent for a flag that takes none.
  std::optional<std::string> value = {};
  bool operator==(const GivenFlag&) const = default;
};

struct SplitCommandLine {
  /// The launcher's own.
  std::vector<GivenFlag> flags;
  /// The program and its arguments.
  std::vector<std::string> program;
};

/// Splits at the first word that is neither a flag nor a flag's value; "--" may stand before it.
/// Errors: an unknown flag (with a suggestion), an ambiguous beginning, a missing value.
base::Result<SplitCommandLine> split_command_line(const std::vector<std::string>& arguments,
                                                  const std::vector<Flag>& flags);

}  // namespace cohort::cli
