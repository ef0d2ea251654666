/// Reads flags from a TOML file, for --config.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "tools/cohort/flags.h"

namespace cohort::cli {

/// Longer files are refused: the TOML library takes minutes for a line of a megabyte.
inline constexpr size_t kMostConfigBytes = 64 * 1024;

/// Returns the file's entries as flags of a command line. An entry is a flag's name without dashes, written with "-" or "_":
///     nproc-per-node = 4
///     standalone = true
/// Errors: a missing file (flags_from_file), invalid TOML, a section, or an unknown flag (with a suggestion).
base::Result<std::vector<GivenFlag>> flags_from_text(const std::string& text, const std::vector<Flag>& flags);
base::Result<std::vector<GivenFlag>> flags_from_file(const std::string& path, const std::vector<Flag>& flags);

}  // namespace cohort::cli
