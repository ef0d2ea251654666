/// LaunchPlace: the place of this process in a job, so that the same program trains with and without a launcher.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/train/strategy/trainer_options.h"

namespace cohort::train::detail {

enum class StrategyKind { kSingle, kDdp, kFsdp, kDataParallel };
const char* name_of(StrategyKind kind);

struct LaunchPlace {
  StrategyKind strategy = StrategyKind::kSingle;
  int rank = 0;
  int world_size = 1;
  int num_ranks_here = 1;  ///< on this host
  /// Among the ranks that read different data. Fewer than all ranks if some work on the same batch (TrainerOptions::dims).
  int data_rank = 0;
  int num_data_ranks = 1;
  /// This rank's stage of a pipeline (TrainerOptions::dims).
  int stage = 0;
  int num_stages = 1;
  /// The shard of each sequence that this rank has, if ranks shard sequences (TrainerOptions::dims).
  int sequence_shard = 0;
  int num_sequence_shards = 1;
  /// The device of batches and losses: the first of `devices`.
  c10::Device device = c10::kCPU;
  /// More than one only with data_parallel, which may name a device several times.
  std::vector<c10::Device> devices = {c10::kCPU};

  /// Ranks that compute one layer together must draw the same random numbers: only they have the same number here.
  int64_t drawing_rank() const { return data_rank + num_data_ranks * (stage + num_stages * int64_t{sequence_shard}); }
  bool has_group() const { return strategy == StrategyKind::kDdp || strategy == StrategyKind::kFsdp; }
  /// The devices whose random numbers training draws: the CPU and the accelerators, each once.
  std::vector<c10::Device> generators() const;
};

/// Chooses the strategy, compares `devices` and `num_nodes` with the job, and joins the default group unless it exists. That
/// group lives until the process ends or the program destroys it. Collective. Throws c10::ValueError, which says how to start the
/// program.
LaunchPlace take_place(const StrategyOptions& options);

}  // namespace cohort::train::detail
