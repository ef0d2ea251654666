/// LaunchPlace: where this process stands in a job, for what trains under a launcher and without one by the same program.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "cohort/train/trainer/trainer_options.h"

namespace cohort::train::detail {

enum class StrategyKind { kSingle, kDdp, kFsdp, kDataParallel };
const char* name_of(StrategyKind kind);

struct LaunchPlace {
  StrategyKind strategy = StrategyKind::kSingle;
  int rank = 0;
  int world_size = 1;
  int num_ranks_here = 1;  ///< on this host
  c10::Device device = c10::kCPU;
  /// With data_parallel; empty: the CPU alone. `device` is the first one.
  std::vector<c10::Device> replica_devices = {};

  bool has_group() const { return strategy == StrategyKind::kDdp || strategy == StrategyKind::kFsdp; }
};

/// Chooses the strategy, compares `devices` and `num_nodes` with the job, and joins its default group where there is none; that
/// group then lives until the process ends, or somebody destroys it. Collective. Throws c10::ValueError, which says how to start
/// the program.
LaunchPlace take_place(const StrategyOptions& options);

}  // namespace cohort::train::detail
