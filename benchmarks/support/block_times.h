/// Times of calls, measured in blocks, and the comparison of two engines' blocks. Pure.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/support/report.h"

namespace cohort::bench {

/// Returns the times of one block's calls, in nanoseconds, of the rank that took longest. A rank that need not wait (a
/// broadcast's root) may run ahead of the others, so the slowest rank is chosen per block, not per call. Throws
/// std::runtime_error for an answer that has anything but numbers.
std::vector<double> slowest_rank(const std::vector<std::string>& answers);

/// All blocks of one engine in one case.
class BlockTimes {
 public:
  void add(const std::vector<double>& nanoseconds);
  bool empty() const { return medians_.empty(); }
  /// Microseconds per block.
  const std::vector<double>& medians() const { return medians_; }
  const std::vector<double>& means() const { return means_; }
  /// Over all calls, in microseconds.
  Spread spread() const;

 private:
  std::vector<double> calls_;
  std::vector<double> medians_;
  std::vector<double> means_;
};

/// Computes ours and rival (medians of the blocks' medians) and the ratio (the median over pairs of blocks). Fills all but the
/// names. Requires equally many blocks of both.
Row compare_blocks(const BlockTimes& ours, const BlockTimes& rival);

}  // namespace cohort::bench
