/// Medians and their uncertainty. Pure.
///
/// Times on a shared machine have long tails, so no distribution is assumed: the bounds of a median come from order statistics
/// (the sign test), and bounds of other figures from the bootstrap.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace cohort::bench {

struct Interval {
  double low = 0;
  double high = 0;
};

/// Requires at least one value.
double median(std::vector<double> values);

/// Returns the order statistics between which the true median lies with a probability of at least 95 %; with fewer than 6 values
/// the extremes, which do not reach 95 %. Requires at least one value.
Interval median_bounds(std::vector<double> values);

/// Returns the 95 % percentile bootstrap: computes `figure` for 2000 samples of the indices 0 .. count - 1, drawn with
/// replacement. The draws are the same in every call.
Interval bootstrap_bounds(size_t count, const std::function<double(const std::vector<size_t>&)>& figure);

/// A line y = intercept + slope * x through the points, by least squares of the relative errors: (y - line) / y.
struct Line {
  double intercept = 0;
  double slope = 0;
};
/// Requires at least two different x, and no y of 0.
Line fit_line(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace cohort::bench
