#include "benchmarks/support/block_times.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "cohort/base/text/text.h"

namespace cohort::bench {

std::vector<double> slowest_rank(const std::vector<std::string>& answers) {
  std::vector<double> slowest;
  double longest = -1;
  for (const std::string& answer : answers) {
    std::vector<double> times;
    for (const std::string& word : base::split(base::trim(answer), ' ')) {
      const auto time = base::parse_double(word);
      if (!time) throw std::runtime_error("expected the times of calls, got \"" + answer + "\"");
      times.push_back(*time);
    }
    const double sum = std::accumulate(times.begin(), times.end(), 0.0);
    if (sum > longest) {
      longest = sum;
      slowest = std::move(times);
    }
  }
  return slowest;
}

void BlockTimes::add(const std::vector<double>& nanoseconds) {
  std::vector<double> times;
  for (const double time : nanoseconds) times.push_back(time / 1e3);
  medians_.push_back(median(times));
  means_.push_back(std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size()));
  calls_.insert(calls_.end(), times.begin(), times.end());
}

Spread BlockTimes::spread() const {
  std::vector<double> sorted = calls_;
  std::sort(sorted.begin(), sorted.end());
  const double mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
  return {.min = sorted.front(), .p50 = median(sorted), .p99 = sorted[(sorted.size() * 99 - 1) / 100], .mean = mean};
}

Row compare_blocks(const BlockTimes& ours, const BlockTimes& rival) {
  Row row = compare_times(ours.medians(), rival.medians());
  row.ratio_of_means = compare_times(ours.means(), rival.means()).ratio;
  row.ours_spread = ours.spread();
  row.rival_spread = rival.spread();
  row.unit = "us";
  return row;
}

}  // namespace cohort::bench
