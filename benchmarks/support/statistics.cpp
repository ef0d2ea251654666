#include "benchmarks/support/statistics.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace cohort::bench {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Interval median_bounds(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  // The number of values below the true median is binomially distributed with p = 1/2. `skipped` values may be left out at each
  // end as long as at most 2.5 % of the distribution is at or below skipped - 1.
  double probability = std::pow(0.5, static_cast<double>(count));
  double tail = 0;
  size_t skipped = 0;
  while (skipped < count / 2) {
    tail += probability;
    if (tail > 0.025) break;
    probability *= static_cast<double>(count - skipped) / static_cast<double>(skipped + 1);
    ++skipped;
  }
  const size_t first = skipped > 0 ? skipped - 1 : 0;
  return {values[first], values[count - 1 - first]};
}

Interval bootstrap_bounds(size_t count, const std::function<double(const std::vector<size_t>&)>& figure) {
  constexpr size_t kSamples = 2000;
  std::mt19937 generator(1);
  std::uniform_int_distribution<size_t> any(0, count - 1);
  std::vector<size_t> indices(count);
  std::vector<double> figures;
  for (size_t sample = 0; sample < kSamples; ++sample) {
    std::generate(indices.begin(), indices.end(), [&] { return any(generator); });
    figures.push_back(figure(indices));
  }
  std::sort(figures.begin(), figures.end());
  return {figures[kSamples / 40], figures[kSamples - 1 - kSamples / 40]};
}

Line fit_line(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double weight = 1 / (y[i] * y[i]);
    sum += weight;
    sum_x += weight * x[i];
    sum_y += weight * y[i];
    sum_xx += weight * x[i] * x[i];
    sum_xy += weight * x[i] * y[i];
  }
  const double slope = (sum * sum_xy - sum_x * sum_y) / (sum * sum_xx - sum_x * sum_x);
  return {(sum_y - slope * sum_x) / sum, slope};
}

}  // namespace cohort::bench
