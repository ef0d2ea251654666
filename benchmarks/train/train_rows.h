/// What `train` makes of the blocks that its sides have taken. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/support/report.h"

namespace cohort::bench {

/// Means of a block's steps, in milliseconds.
struct TrainBlock {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double step = 0;
  double passes() const { return forward + backward; }
  double total() const { return data + passes() + step; }
};

/// By a side's name, one for each round: "ours-WORKERS", "ours-shared-WORKERS" (with the shared allocator),
/// "trainer-WORKERS", "ours-floor", and, where there is Python, "python-WORKERS", "python-fused-WORKERS", "python-floor". One of
/// "ours-WORKERS" and "ours-floor" are there.
using TrainBlocks = std::map<std::string, std::vector<TrainBlock>>;

struct TrainCase {
  std::string name;
  /// Of a rank.
  int64_t batch_size = 1;
  int64_t units_per_sample = 1;
  std::string unit;
};

/// The steps that all ranks have answered with, four numbers each: those of a floor as long as on the rank that took longest,
/// those of training as the mean of the ranks. Throws std::runtime_error for answers that are no such numbers.
TrainBlock train_block(const std::vector<std::string>& answers, bool is_floor);

/// Units per second, the time outside of kernels, and the parts of a step, each beside Python's: of the number of workers that is
/// the fastest of each kind of side.
std::vector<Row> train_rows(const TrainCase& what, int num_ranks, const TrainBlocks& blocks);

}  // namespace cohort::bench
