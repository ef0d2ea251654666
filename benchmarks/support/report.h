/// Rows of results: a table on the screen, JSON for machines.
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
  /// Parts joined by slashes, as "mlp-4x1024/ranks=2".
  std::string case_name;
  std::optional<double> ours;
  /// Absent: the rival is not installed here.
  std::optional<double> rival;
  std::string rival_name;
  std::string unit;
  /// Above 1: ours is better. With pairs: the median of the pairs' ratios.
  std::optional<double> ratio;
  std::optional<Interval> bounds;
  size_t num_pairs = 0;
  /// Fewer pairs leave no room for 95 % bounds: then `bounds` are the least and the largest ratio, and are called a range.
  bool is_range() const { return num_pairs < 6; }
  /// Where single calls were timed. Medians forgive what happens to fewer than half of all calls; means do not.
  std::optional<Spread> ours_spread;
  std::optional<Spread> rival_spread;
  std::optional<double> ratio_of_means;
  /// What the rival is, or why there is no figure.
  std::string note = {};
};

/// How a pair of time series, taken turn by turn, becomes a row. Lower is better. Fills all but the names.
Row compare_times(const std::vector<double>& ours, const std::vector<double>& rival);
/// The same for the time that each adds to a plain step of its own: medians of differences, bounds by bootstrap.
/// No ratio where a difference's 95 % bounds reach 0: noise then hides what is added.
struct AddedTimes {
  std::vector<double> ours, ours_plain, rival, rival_plain;
};
Row compare_added_times(const AddedTimes& times);
/// What ours takes above `floor`, in the unit of `budget`, beside the budget. No ratio where the bounds reach 0.
Row compare_with_budget(const std::vector<double>& ours, const std::vector<double>& floor, double budget);

void print_table(const std::vector<Row>& rows);
/// A JSON list of rows. Besides the contract's keys: "ratio_low", "ratio_high", "bounds" ("95 %" or "range"), "pairs", "note";
/// where single calls were timed "ours_min", "ours_p50", "ours_p99", "ours_mean", the same of the rival, "ratio_mean". Throws
/// std::runtime_error.
void write_json(const std::vector<Row>& rows, const std::string& path);

}  // namespace cohort::bench
