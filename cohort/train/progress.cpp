#include "cohort/train/progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "cohort/base/env.h"
#include "cohort/base/file.h"

namespace cohort::train {
namespace {

constexpr const char* kEraseLine = "\r\x1b[2K";
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kPlain = "\x1b[0m";
constexpr std::chrono::milliseconds kTerminalInterval{200};
constexpr std::chrono::milliseconds kLogInterval{5000};

std::string format_number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string format_metric(double value) {
  const double size = std::fabs(value);
  return format_number(size != 0.0 && size < 1e-2 ? "%.2e" : "%.4f", value);
}

bool wants_terminal(const ProgressOptions& options) {
  if (options.style != LineStyle::kAuto) return options.style == LineStyle::kTerminal;
  return ::isatty(options.fd) == 1 && base::get_env("TERM").value_or("dumb") != "dumb";
}

bool wants_colour() {
  return base::get_env("NO_COLOR").value_or("").empty() && base::get_env("TERM").value_or("dumb") != "dumb";
}

// Progress is a courtesy: a closed terminal must not end the training.
void write_quietly(int fd, const std::string& text) { static_cast<void>(base::write_all(fd, text).ok()); }

}  // namespace

std::string format_rate(double units_per_second, std::string_view unit) {
  const bool is_large = units_per_second >= 1e6, is_medium = units_per_second >= 1e4;
  const double scaled = is_large ? units_per_second / 1e6 : is_medium ? units_per_second / 1e3 : units_per_second;
  const char* suffix = is_large ? "M " : is_medium ? "k " : " ";
  return format_number(scaled < 100 ? "%.1f" : "%.0f", scaled) + suffix + std::string(unit) + "/s";
}

std::string format_clock(std::chrono::seconds time) {
  const long long total = time.count(), hours = total / 3600, minutes = total / 60 % 60, seconds = total % 60;
  char text[64];
  if (hours > 0) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", hours, minutes, seconds);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", minutes, seconds);
  }
  return text;
}

ProgressLine::ProgressLine(ProgressOptions options) : options_(std::move(options)) {
  is_terminal_ = wants_terminal(options_);
  has_colour_ = is_terminal_ && wants_colour();
  if (!options_.min_interval) options_.min_interval = is_terminal_ ? kTerminalInterval : kLogInterval;
  started_at_ = now();
}

ProgressLine::~ProgressLine() { end_line(); }

void ProgressLine::update(int64_t step, int64_t done, const Metrics& metrics) {
  if (!options_.is_enabled) return;
  const bool is_last = step >= options_.total_steps;
  if (was_shown_ && !is_last && now() - shown_at_ < *options_.min_interval) return;
  was_shown_ = true;
  shown_at_ = now();
  const std::string line = format(step, done, metrics);
  write_quietly(options_.fd, is_terminal_ ? kEraseLine + line : line + "\n");
  is_line_open_ = is_terminal_;
  if (is_last) end_line();
}

void ProgressLine::print(std::string_view text) {
  if (!options_.is_enabled) return;
  write_quietly(options_.fd, (is_line_open_ ? kEraseLine : "") + std::string(text) + "\n");
  is_line_open_ = false;
}

std::string ProgressLine::format(int64_t step, int64_t done, const Metrics& metrics) const {
  const double elapsed = std::chrono::duration<double>(now() - started_at_).count();
  const int64_t steps_here = step - options_.first_step;
  std::string line = "step " + std::to_string(step) + "/" + std::to_string(options_.total_steps);
  for (const auto& [name, value] : metrics) line += "  " + name + " " + format_metric(value);
  std::string tail;
  if (elapsed > 0.0) tail += "  " + format_rate(static_cast<double>(done) / elapsed, options_.unit);
  if (steps_here > 0) {
    const double left = elapsed / static_cast<double>(steps_here) * static_cast<double>(options_.total_steps - step);
    tail += "  ETA " + format_clock(std::chrono::seconds(std::llround(std::max(0.0, left))));
  }
  return line + (has_colour_ ? kDim + tail + kPlain : tail);
}

std::chrono::steady_clock::time_point ProgressLine::now() const {
  return options_.now ? options_.now() : std::chrono::steady_clock::now();
}

void ProgressLine::end_line() {
  if (is_line_open_) write_quietly(options_.fd, "\n");
  is_line_open_ = false;
}

}  // namespace cohort::train
