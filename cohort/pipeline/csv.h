/// Reads and writes lists of actions in files, as _dump_csv and _load_csv of torch/distributed/pipelining/schedules.py do: a line
/// per rank, commas between actions, and an empty cell for an idle step.
#pragma once

#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/pipeline/action.h"

namespace cohort::pipeline {

/// Parses lists. Errors have line and column (both from 1, in bytes), such as `"plan.csv", line 2, column 5: Invalid action
/// string: 2X0, ...`. `name` is the file's name in errors.
base::Result<PipelineOrder> parse_csv(const std::string& name, std::string_view text);
/// Returns the same bytes as Python's writer: lines end in "\r\n".
std::string csv_text(const PipelineOrder& order);

base::Result<PipelineOrder> load_csv(const std::string& path);
/// Writes the file completely or not at all. Only its owner may read it.
base::Result<void> save_csv(const std::string& path, const PipelineOrder& order);

}  // namespace cohort::pipeline
