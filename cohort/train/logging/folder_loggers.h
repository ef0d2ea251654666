/// Makes the loggers of TrainerOptions::log_folder. libcohort_extras.so replaces the function when it is loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cohort/export.h"
#include "cohort/train/logging/logger.h"

namespace cohort::train::detail {

/// `first_step`: as in run_loggers().
using FolderLoggers = std::shared_ptr<Logger> (*)(const std::string& folder, int64_t first_step, bool plot);

/// Sets the function. Called once, before main(), or when a program loads the extras itself.
COHORT_EXTRAS_API void set_folder_loggers(FolderLoggers make);
/// Without the extras: writes only metrics.jsonl, and throws c10::ValueError if `plot` is true.
COHORT_TEST_API std::shared_ptr<Logger> folder_loggers(const std::string& folder, int64_t first_step, bool plot);

/// Writes messages as this library does. The extras have their own copy of base/log/log.cpp, which does not know about progress
/// lines.
COHORT_EXTRAS_API void write_log_lines(std::string_view lines);

}  // namespace cohort::train::detail
