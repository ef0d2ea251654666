/// Rows of results: a table on the screen, and JSON for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "benchmarks/support/statistics.h"

namespace cohort::bench {

/// Of single calls, in the row's unit.
struct Spread {
  double min = 0;
  double p50 = 0;
  double p99 = 0;
  double mean = 0;
};

struct Row {
  std::string question;
  /// Parts separated by slashes, such as "mlp-4x1024/ranks=2".
  std::string case_name;
  std::optional<double> ours;
  /// Absent if the rival is not installed.
  std::optional<double> rival;
  std::string rival_name;
  std::string unit;
  /// Ours is better if it is above 1. With pairs, the median of the pairs' ratios.
  std::optional<double> ratio;
  std::optional<Interval> bounds;
  size_t num_pairs = 0;
  /// Whether there are too few pairs for 95 % bounds; `bounds` are then the smallest and the largest ratio, called a range.
  bool is_range() const { return num_pairs < 6; }
  /// Present if single calls were timed. Medians ignore what happens to fewer than half of all calls; means do not.
  std::optional<Spread> ours_spread;
  std::optional<Spread> rival_spread;
  std::optional<double> ratio_of_means;
  /// A description of the rival, or why there is no figure.
  std::string note = {};
};

/// Makes a row from two series of times, measured in turn. Lower is better. Fills all but the names.
Row compare_times(const std::vector<double>& ours, const std::vector<double>& rival);
/// The same for the time that each adds to its own plain step: medians of differences, with bounds by bootstrap. There is no
/// ratio if a difference's 95 % bounds include 0, as noise then hides what is added.
struct AddedTimes {
  std::vector<double> ours, ours_plain, rival, rival_plain;
};
Row compare_added_times(const AddedTimes& times);
/// Compares the time that ours takes above `floor`, in the unit of `budget`, with the budget. There is no ratio if the bounds
/// include 0.
Row compare_with_budget(const std::vector<double>& ours, const std::vector<double>& floor, double budget);

void print_table(const std::vector<Row>& rows);
/// Writes a JSON list of rows. In addition to the contract's keys: "ratio_low", "ratio_high", "bounds" ("95 %" or "range"),
/// "pairs", "note"; if single calls were timed "ours_min", "ours_p50", "ours_p99", "ours_mean", the same for the rival, and
/// "ratio_mean". Throws std::runtime_error.
void write_json(const std::vector<Row>& rows, const std::string& path);

}  // namespace cohort::bench
