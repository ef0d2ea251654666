/// Histogram: the distribution of a tensor's numbers, in TensorBoard's form.
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
  /// Each bucket reaches from the limit before it to its own. The first one is empty: its limit is the lower bound of the second.
  std::vector<double> bucket_limits;
  std::vector<double> bucket_counts;
};

/// The edges of torch.utils.tensorboard's bins="tensorflow": 0, and from 1e-12 to 1e20 in steps of a tenth, with both signs.
const std::vector<double>& default_bin_edges();

/// Makes torch.utils.tensorboard's histogram of these numbers, with at most about `max_bins` bins (at least 1), joining
/// neighbors. Numbers outside the edges, and NaN, count only in `count` and the sums. Fails if no number is inside.
base::Result<Histogram> make_histogram(std::span<const double> values, std::span<const double> edges,
                                       std::optional<int64_t> max_bins = {});

}  // namespace cohort::report
