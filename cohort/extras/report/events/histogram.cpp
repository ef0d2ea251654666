#include "cohort/extras/report/events/histogram.h"

#include <algorithm>
#include <cmath>

namespace cohort::report {
namespace {

// Bin i is [edges[i], edges[i + 1]); the last one includes its upper edge.
std::vector<double> count_in_bins(std::span<const double> values, std::span<const double> edges) {
  std::vector<double> counts(edges.size() - 1, 0.0);
  for (const double value : values) {
    if (!(value >= edges.front() && value <= edges.back())) continue;
    const auto above = static_cast<size_t>(std::upper_bound(edges.begin(), edges.end(), value) - edges.begin());
    ++counts[std::min(above, counts.size()) - 1];
  }
  return counts;
}

// Joins every `stride` bins to one; the last may have fewer.
void join_bins(std::vector<double>& counts, std::vector<double>& edges, size_t stride) {
  std::vector<double> joined_counts, joined_edges;
  for (size_t first = 0; first < counts.size(); first += stride) {
    joined_edges.push_back(edges[first]);
    double sum = 0.0;
    for (size_t i = first; i < std::min(first + stride, counts.size()); ++i) sum += counts[i];
    joined_counts.push_back(sum);
  }
  joined_edges.push_back(edges.back());
  counts = std::move(joined_counts);
  edges = std::move(joined_edges);
}

// A NaN makes the minimum and maximum NaN, as in NumPy.
void add_figures(Histogram& histogram, std::span<const double> values) {
  histogram.count = static_cast<int64_t>(values.size());
  histogram.min = histogram.max = values.front();
  for (const double value : values) {
    histogram.sum += value;
    histogram.sum_of_squares += value * value;
    histogram.min = std::isnan(value) ? value : std::min(histogram.min, value);
    histogram.max = std::isnan(value) ? value : std::max(histogram.max, value);
  }
}

}  // namespace

const std::vector<double>& default_bin_edges() {
  static const std::vector<double> edges = [] {
    std::vector<double> positive;
    for (double edge = 1e-12; edge < 1e20; edge *= 1.1) positive.push_back(edge);
    std::vector<double> all;
    for (auto edge = positive.rbegin(); edge != positive.rend(); ++edge) all.push_back(-*edge);
    all.push_back(0.0);
    all.insert(all.end(), positive.begin(), positive.end());
    return all;
  }();
  return edges;
}

base::Result<Histogram> make_histogram(std::span<const double> values, std::span<const double> edges,
                                       std::optional<int64_t> max_bins) {
  std::vector<double> limits(edges.begin(), edges.end());
  std::vector<double> counts = count_in_bins(values, edges);
  const auto is_filled = [](double count) { return count > 0.0; };
  if (max_bins && static_cast<size_t>(*max_bins) < counts.size()) {
    join_bins(counts, limits, counts.size() / static_cast<size_t>(*max_bins));
  }
  const auto first = std::find_if(counts.begin(), counts.end(), is_filled);
  if (first == counts.end()) return base::Error("it has no numbers between -1e20 and 1e20");
  const auto end = std::find_if(counts.rbegin(), counts.rend(), is_filled).base();
  Histogram histogram;
  add_figures(histogram, values);
  histogram.bucket_limits.assign(limits.begin() + (first - counts.begin()),
                                 limits.begin() + (end - counts.begin()) + 1);
  histogram.bucket_counts.push_back(0.0);
  histogram.bucket_counts.insert(histogram.bucket_counts.end(), first, end);
  return histogram;
}

}  // namespace cohort::report
