#include "cohort/report/terminal/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace cohort::report {

std::string rate_text(double units_per_second, std::string_view unit) {
  const bool is_large = units_per_second >= 1e6, is_medium = units_per_second >= 1e4;
  const double scaled = is_large ? units_per_second / 1e6 : is_medium ? units_per_second / 1e3 : units_per_second;
  return fmt::format("{:.{}f}{} {}/s", scaled, scaled < 100 ? 1 : 0, is_large ? "M" : is_medium ? "k" : "", unit);
}

std::string clock_text(std::chrono::seconds time) {
  const long long total = time.count(), hours = total / 3600, minutes = total / 60 % 60, seconds = total % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, seconds) : fmt::format("{}:{:02}", minutes, seconds);
}

std::string clock_text(double seconds) {
  constexpr double kLongest = 1e10;  // 300 years
  return clock_text(std::chrono::seconds(std::llround(std::clamp(seconds, 0.0, kLongest))));
}

std::string metric_text(double value) {
  if (std::isnan(value)) return "nan";  // not "-nan"
  const double size = std::fabs(value);
  return size != 0.0 && size < 1e-2 ? fmt::format("{:.2e}", value) : fmt::format("{:.4f}", value);
}

std::string grouped_text(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool is_behind_group = i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-';
    if (is_behind_group) text += ',';
    text += digits[i];
  }
  return text;
}

std::string percent_text(double share) { return fmt::format("{:.0f}%", 100.0 * share); }

}  // namespace cohort::report
