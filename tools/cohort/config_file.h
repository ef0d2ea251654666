/// --config: flags in a TOML file.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "tools/cohort/flags.h"

namespace cohort::cli {

/// Longer files are refused: the library that reads TOML takes minutes for a line of a megabyte.
inline constexpr size_t kMostConfigBytes = 64 * 1024;

/// The file's entries as flags of a command line. An entry is a flag's name without dashes, written with "-" or "_":
///     nproc-per-node = 4
///     standalone = true
/// Errors: no such file (flags_from_file), no TOML, a section, or a name that is no flag (with a suggestion).
base::Result<std::vector<GivenFlag>> flags_from_text(const std::string& text, const std::vector<Flag>& flags);
base::Result<std::vector<GivenFlag>> flags_from_file(const std::string& path, const std::vector<Flag>& flags);

}  // namespace cohort::cli
