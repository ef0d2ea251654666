/// Lists of actions as files, as _dump_csv and _load_csv of torch/distributed/pipelining/schedules.py write and read them: a line
/// per rank, commas between actions, nothing for an idle step.
#pragma once

#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/pipeline/action.h"

namespace cohort::pipeline {

/// Fails for texts that are no such lists, with line and column (both from 1, in bytes), such as
/// `"plan.csv", line 2, column 5: Invalid action string: 2X0, ...`. `name`: of the file, for errors.
base::Result<PipelineOrder> parse_csv(const std::string& name, std::string_view text);
/// Byte for byte what Python's writer gives: lines end in "\r\n".
std::string csv_text(const PipelineOrder& order);

base::Result<PipelineOrder> load_csv(const std::string& path);
/// Whole or not at all; only its owner may read it.
base::Result<void> save_csv(const std::string& path, const PipelineOrder& order);

}  // namespace cohort::pipeline
