#include "cohort/pipeline/balance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace cohort::pipeline {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

// The best way to split a sequence, by dynamic programming over the beginning of the last part.
struct Partition {
  std::vector<int> counts;
  double total = kImpossible;
};

Partition best_partition(const std::vector<double>& sums, int num_parts,
                         const std::function<double(double)>& cost_of_part,
                         const std::function<double(double, double)>& combine) {
  const size_t num_layers = sums.size() - 1, parts = static_cast<size_t>(num_parts);
  std::vector<std::vector<double>> best(parts + 1, std::vector<double>(num_layers + 1, kImpossible));
  std::vector<std::vector<size_t>> begins(parts + 1, std::vector<size_t>(num_layers + 1, 0));
  best[0][0] = 0.0;
  for (size_t part = 1; part <= parts; ++part) {
    for (size_t end = part; end <= num_layers; ++end) {
      for (size_t begin = part - 1; begin < end; ++begin) {
        const double total = combine(best[part - 1][begin], cost_of_part(sums[end] - sums[begin]));
        if (total >= best[part][end]) continue;
        best[part][end] = total;
        begins[part][end] = begin;
      }
    }
  }
  Partition partition{std::vector<int>(parts), best[parts][num_layers]};
  size_t end = num_layers;
  for (size_t part = parts; part > 0; --part) {
    const size_t begin = begins[part][end];
    partition.counts[part - 1] = static_cast<int>(end - begin);
    end = begin;
  }
  return partition;
}

}  // namespace

base::Result<std::vector<int>> plan_counts(const std::vector<double>& costs, int num_stages) {
  if (num_stages < 1 || costs.size() < static_cast<size_t>(num_stages)) {
    return base::Error(fmt::format("pipeline: {} layers cannot be split over {} stages", costs.size(), num_stages))
        .with_hint("use fewer stages: each needs at least one layer");
  }
  for (size_t i = 0; i < costs.size(); ++i) {
    if (std::isfinite(costs[i]) && costs[i] >= 0.0) continue;
    return base::Error(fmt::format("pipeline: layer {} cannot cost {}", i, costs[i]));
  }
  std::vector<double> sums(costs.size() + 1, 0.0);
  std::partial_sum(costs.begin(), costs.end(), sums.begin() + 1);
  const double limit =
      best_partition(
          sums, num_stages, [](double part) { return part; }, [](double a, double b) { return std::max(a, b); })
          .total;
  const auto squared_below_limit = [&](double part) { return part > limit ? kImpossible : part * part; };
  return best_partition(sums, num_stages, squared_below_limit, std::plus<>()).counts;
}

base::Result<void> check_counts(const std::vector<int>& counts, size_t num_layers) {
  size_t sum = 0;
  bool are_positive = !counts.empty();
  for (const int count : counts) {
    are_positive = are_positive && count > 0;
    sum += static_cast<size_t>(std::max(count, 0));
  }
  if (are_positive && sum == num_layers) return {};
  return base::Error(fmt::format("pipeline: the counts [{}] do not fit {} layers", fmt::join(counts, ", "), num_layers))
      .with_hint("give a positive number for each stage; their sum is the number of layers");
}

}  // namespace cohort::pipeline
