/// Parses torchrun's command line, which allows more than CLI11's: underscores for dashes, unique prefixes of a flag's name, and
/// a program after which every word belongs to the program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::cli {

struct Flag {
  /// The name, such as "--log-dir" or "-t".
  std::string name;
  bool takes_value = true;
};

/// A flag that was given, with its full name.
struct GivenFlag {
  std::string name;
  /// The value. Absent for a flag that takes none.
  std::optional<std::string> value = {};
  bool operator==(const GivenFlag&) const = default;
};

struct SplitCommandLine {
  /// The launcher's own flags.
  std::vector<GivenFlag> flags;
  /// The program and its arguments.
  std::vector<std::string> program;
};

/// Splits at the first word that is neither a flag nor a flag's value; "--" may come before it. Errors: an unknown flag (with a
/// suggestion), an ambiguous prefix, a missing value.
base::Result<SplitCommandLine> split_command_line(const std::vector<std::string>& arguments,
                                                  const std::vector<Flag>& flags);

}  // namespace cohort::cli
