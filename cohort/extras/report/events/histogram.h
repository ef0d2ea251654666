/// Histogram: how many of a tensor's numbers are how large, in the form that TensorBoard takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::report {

struct Histogram {
  double min = 0.0, max = 0.0;
  int64_t count = 0;
  double sum = 0.0, sum_of_squares = 0.0;
  /// Each bucket reaches from the limit before it to its own. The first is empty: it only says where the second begins.
  std::vector<double> bucket_limits;
  std::vector<double> bucket_counts;
};

/// torch.utils.tensorboard's bins="tensorflow": 0, and from 1e-12 on, each a tenth larger, to 1e20, with both signs.
const std::vector<double>& default_bin_edges();

/// What torch.utils.tensorboard makes of these numbers, with at most about `max_bins` bins (at least 1), where neighbours are
/// joined. A number outside of the edges, or none, counts in `count` and the sums only. Fails where none is inside.
base::Result<Histogram> make_histogram(std::span<const double> values, std::span<const double> edges,
                                       std::optional<int64_t> max_bins = {});

}  // namespace cohort::report
