/// Times of calls, taken in blocks, and what two engines' blocks say about each other. Pure.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/support/report.h"

namespace cohort::bench {

/// The times of one block's calls, in nanoseconds, by rank: those of the rank that took longest. A rank that need not wait
/// (a broadcast's root) may run ahead of the others, so no single call's time counts without the block it is in.
/// Throws std::runtime_error for an answer that holds anything else than numbers.
std::vector<double> slowest_rank(const std::vector<std::string>& answers);

/// All blocks of one engine in one case.
class BlockTimes {
 public:
  void add(const std::vector<double>& nanoseconds);
  bool empty() const { return medians_.empty(); }
  /// Microseconds, by block.
  const std::vector<double>& medians() const { return medians_; }
  const std::vector<double>& means() const { return means_; }
  /// Over all calls, in microseconds.
  Spread spread() const;

 private:
  std::vector<double> calls_;
  std::vector<double> medians_;
  std::vector<double> means_;
};

/// ours and rival: medians of the blocks' medians; ratio: the median over pairs of blocks. Fills all but the names.
/// Requires as many blocks of both.
Row compare_blocks(const BlockTimes& ours, const BlockTimes& rival);

}  // namespace cohort::bench
