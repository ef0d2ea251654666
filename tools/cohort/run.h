/// Parses the command line of `cohort run`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/elastic/agent/launch.h"

namespace cohort::cli {

/// Fills `flags` from the arguments, PET_* variables and --config's file. Returns the help text if help was requested.
base::Result<std::optional<std::string>> parse_run_flags(const std::vector<std::string>& arguments,
                                                         elastic::LaunchFlags* flags);

}  // namespace cohort::cli
