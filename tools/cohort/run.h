/// What `cohort run` makes of its words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/elastic/agent/launch.h"

namespace cohort::cli {

/// Fills `flags` from the words, PET_* variables and --config's file; the text is help to print, if that was asked for.
base::Result<std::optional<std::string>> parse_run_flags(const std::vector<std::string>& arguments,
                                                         elastic::LaunchFlags* flags);

}  // namespace cohort::cli
