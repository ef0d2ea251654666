#include "cohort/train/progress.h"

#include <utility>

#include "cohort/base/system/deadline.h"
#include "cohort/report/progress/step_text.h"
#include "cohort/report/terminal/figures.h"
#include "cohort/report/terminal/live_line.h"

namespace cohort::train {
namespace {

constexpr std::chrono::milliseconds kTerminalInterval{200};
constexpr std::chrono::milliseconds kLogInterval{5000};

}  // namespace

static_assert(static_cast<int>(LineStyle::kTerminal) == static_cast<int>(report::LineKind::kTerminal) &&
              static_cast<int>(LineStyle::kLog) == static_cast<int>(report::LineKind::kLog));

std::string format_rate(double units_per_second, std::string_view unit) {
  return report::rate_text(units_per_second, unit);
}
std::string format_clock(std::chrono::seconds time) { return report::clock_text(time); }

ProgressLine::ProgressLine(ProgressOptions options)
    : options_(std::move(options)),
      line_(std::make_unique<report::LiveLine>(options_.fd, static_cast<report::LineKind>(options_.style))) {
  if (!options_.min_interval) options_.min_interval = line_->is_terminal() ? kTerminalInterval : kLogInterval;
  started_at_ = now();
}

ProgressLine::~ProgressLine() = default;

void ProgressLine::update(int64_t step, int64_t done, const Metrics& metrics) {
  if (!options_.is_enabled) return;
  const bool is_last = options_.total_steps && step >= *options_.total_steps;
  if (was_shown_ && !is_last && now() - shown_at_ < base::bounded_time(*options_.min_interval)) return;
  was_shown_ = true;
  shown_at_ = now();
  line_->show(report::step_parts({.step = step,
                                  .total_steps = options_.total_steps,
                                  .first_step = options_.first_step,
                                  .seconds = std::chrono::duration<double>(shown_at_ - started_at_).count(),
                                  .done = done,
                                  .unit = options_.unit,
                                  .metrics = metrics}));
  if (is_last) line_->end();
}

void ProgressLine::print(std::string_view text) {
  if (options_.is_enabled) line_->print(text);
}

std::chrono::steady_clock::time_point ProgressLine::now() const {
  return options_.now ? options_.now() : std::chrono::steady_clock::now();
}

}  // namespace cohort::train
