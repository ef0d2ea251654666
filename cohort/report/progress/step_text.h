/// The text of the live line of a run that counts in steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/report/records/run_record.h"
#include "cohort/report/terminal/line_parts.h"

namespace cohort::report {

struct StepFigures {
  int64_t step = 0;
  std::optional<int64_t> total_steps = {};  ///< absent if not known
  int64_t first_step = 0;
  double seconds = 0.0;  ///< since first_step
  int64_t done = 0;      ///< units since first_step
  std::string unit = "samples";
  NamedNumbers metrics = {};
};
std::vector<LinePart> step_parts(const StepFigures& figures);

}  // namespace cohort::report
