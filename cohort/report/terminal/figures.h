/// Formats figures for people.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::report {

/// Returns "14.9k tokens/s".
std::string rate_text(double units_per_second, std::string_view unit);
/// Returns "0:07", "12:34", "1:02:03".
std::string clock_text(std::chrono::seconds time);
std::string clock_text(double seconds);
/// Returns "2.5000"; "3.00e-04" for numbers that four digits would not show.
std::string metric_text(double value);
/// Returns "25,557,032".
std::string grouped_text(int64_t number);
/// Returns "3%".
std::string percent_text(double share);

}  // namespace cohort::report
