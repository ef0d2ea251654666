/// Makes rows from the blocks of `train`'s sides. Pure.
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

/// By a side's name, one for each round: "ours-WORKERS", "ours-shared-WORKERS" (with the shared allocator), "trainer-WORKERS",
/// "ours-floor", and, with Python, "python-WORKERS", "python-fused-WORKERS", "python-floor". At least one "ours-WORKERS" and
/// "ours-floor" exist.
using TrainBlocks = std::map<std::string, std::vector<TrainBlock>>;

struct TrainCase {
  std::string name;
  /// The batch size of a rank.
  int64_t batch_size = 1;
  int64_t units_per_sample = 1;
  std::string unit;
};

/// Returns the steps of all ranks' answers, with four numbers each: of a floor the times of the slowest rank, of training the
/// means over the ranks. Throws std::runtime_error for other answers.
TrainBlock train_block(const std::vector<std::string>& answers, bool is_floor);

/// Returns units per second, the time outside of kernels, and the parts of a step, each beside Python's, with the fastest number
/// of workers of each kind of side.
std::vector<Row> train_rows(const TrainCase& what, int num_ranks, const TrainBlocks& blocks);

}  // namespace cohort::bench
