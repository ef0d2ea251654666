/// Makes the loggers of TrainerOptions::log_folder. libcohort_extras.so, when it is loaded, replaces how.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cohort/export.h"
#include "cohort/train/logging/logger.h"

namespace cohort::train::detail {

/// `first_step`: as run_loggers has it.
using FolderLoggers = std::shared_ptr<Logger> (*)(const std::string& folder, int64_t first_step, bool plot);

/// Called once, before main() or where a program loads the library itself.
COHORT_EXTRAS_API void set_folder_loggers(FolderLoggers make);
/// Without the extras: metrics.jsonl alone, and c10::ValueError for a plot.
COHORT_TEST_API std::shared_ptr<Logger> folder_loggers(const std::string& folder, int64_t first_step, bool plot);

/// Writes messages where this library writes its own: the extras have a copy of base/log/log.cpp, which
/// knows no line of progress.
COHORT_EXTRAS_API void write_log_lines(std::string_view lines);

}  // namespace cohort::train::detail
