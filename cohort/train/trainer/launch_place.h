/// LaunchPlace: where this process stands in a job, for what trains under a launcher and without one by the same program.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
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
  /// Of those that read other data than each other: fewer than ranks where some work on one batch (TrainerOptions::dims).
  int data_rank = 0;
  int num_data_ranks = 1;
  /// Of a pipeline (TrainerOptions::dims), of whose ranks this is the one of number `stage`.
  int stage = 0;
  int num_stages = 1;
  /// Which part of sequences this one has, of ranks that share out their positions (TrainerOptions::dims).
  int sequence_part = 0;
  int num_sequence_parts = 1;
  /// Where batches go and losses are: the first of `devices`.
  c10::Device device = c10::kCPU;
  /// More than one with data_parallel alone, which may name one several times.
  std::vector<c10::Device> devices = {c10::kCPU};

  /// A number that ranks have alike that must draw the same random numbers, those that compute one layer together; no others.
  int64_t drawing_rank() const { return data_rank + num_data_ranks * (stage + num_stages * int64_t{sequence_part}); }
  bool has_group() const { return strategy == StrategyKind::kDdp || strategy == StrategyKind::kFsdp; }
  /// Whose random numbers training draws: the CPU and the accelerators, each once.
  std::vector<c10::Device> generators() const;
};

/// Chooses the strategy, compares `devices` and `num_nodes` with the job, and joins its default group where there is none; that
/// group then lives until the process ends, or somebody destroys it. Collective. Throws c10::ValueError, which says how to start
/// the program.
LaunchPlace take_place(const StrategyOptions& options);

}  // namespace cohort::train::detail
