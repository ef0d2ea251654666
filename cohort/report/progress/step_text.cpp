#include "cohort/report/progress/step_text.h"

#include <fmt/format.h>

#include <cstdint>

#include "cohort/report/terminal/figures.h"

namespace cohort::report {

std::vector<LinePart> step_parts(const StepFigures& figures) {
  // Parts with larger numbers are left out first on a narrow terminal.
  enum Importance : uint8_t { kStep, kFirstValue, kLeft, kSpeed, kValue };
  const std::string of_total = figures.total_steps ? fmt::format("/{}", *figures.total_steps) : "";
  std::vector<LinePart> parts = {{fmt::format("step {}{}", figures.step, of_total), kStep}};
  for (const auto& [name, value] : figures.metrics) {
    parts.push_back({name + " " + metric_text(value), parts.size() == 1 ? kFirstValue : kValue});
  }
  if (figures.seconds > 0.0) {
    parts.push_back({rate_text(static_cast<double>(figures.done) / figures.seconds, figures.unit), kSpeed, true});
  }
  const int64_t steps_here = figures.step - figures.first_step;
  if (figures.total_steps && steps_here > 0) {
    const double per_step = figures.seconds / static_cast<double>(steps_here);
    parts.push_back(
        {"ETA " + clock_text(per_step * static_cast<double>(*figures.total_steps - figures.step)), kLeft, true});
  }
  return parts;
}

}  // namespace cohort::report
