/// run_loggers: the loggers that most runs need, with their files in one folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cohort/export.h"
#include "cohort/train/logging/logger.h"

namespace cohort::train {

/// The files in the folder.
struct RunLoggersOptions {
  bool tensorboard = true;  ///< events/, for `tensorboard --logdir FOLDER`
  bool csv = true;          ///< metrics.csv
  bool json_lines = true;   ///< metrics.jsonl
  bool plot = false;        ///< curves.svg and curves.png; needs json_lines, where the curves of a resumed run begin
};

/// `first_step`: the first step of this run, 1 for a new run. Records of this step and later ones, which an interrupted run left,
/// are removed from the files; TensorBoard is told to ignore them. If a new run begins where an earlier one has logged, all
/// existing files are renamed, with the same number for all (metrics.1.csv, events.1, ...), and a warning says so. Throws
/// c10::Error naming the file, and c10::ValueError for a plot without json_lines.
COHORT_API std::shared_ptr<Logger> run_loggers(const std::string& folder, int64_t first_step,
                                               const RunLoggersOptions& options = {});

}  // namespace cohort::train
