/// run_loggers: the loggers that most runs want, with their files in one folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cohort/export.h"
#include "cohort/train/logging/logger.h"

namespace cohort::train {

/// What there is to be in the folder.
struct RunLoggersOptions {
  bool tensorboard = true;  ///< events/, for `tensorboard --logdir FOLDER`
  bool csv = true;          ///< metrics.csv
  bool json_lines = true;   ///< metrics.jsonl
  bool plot = false;        ///< curves.svg and curves.png; needs json_lines, where the curves of a resumed run begin
};

/// `first_step`: the first that this run makes, 1 for one that begins. Records of it and of later steps, which a broken-off run
/// left, are taken out of the files; TensorBoard is told to forget them. Where a run begins and an earlier one has logged, all
/// that is there is kept under other names, with one number for all (metrics.1.csv, events.1, ...), as a warning says.
/// Throws c10::Error that names the file, and c10::ValueError for a plot without json_lines.
COHORT_API std::shared_ptr<Logger> run_loggers(const std::string& folder, int64_t first_step,
                                               const RunLoggersOptions& options = {});

}  // namespace cohort::train
