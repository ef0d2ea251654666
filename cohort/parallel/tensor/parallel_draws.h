/// RNG scopes for a model whose ranks work on one batch together: some random numbers must be equal on all ranks (dropout of a
/// tensor that every rank has), and some must differ (dropout of a tensor of which each rank has a shard).
///
///     {
///       const cohort::ParallelDraws draws(cohort::Draws::kDiffer, tp);
///       hidden = torch::nn::functional::dropout(hidden, 0.1);       // each rank another mask for its columns
///     }
///
/// In the scope another generator replaces the default generator. Its seed is one number drawn from the default generator and,
/// with kDiffer, the rank. At the end of the scope the default generator is as it was after that draw, however many numbers were
/// drawn in between. So generators that were equal on all ranks stay equal; checkpoints and activation checkpointing need no
/// extra state; and the same seed repeats a run.
///
/// kAlike sends the number of the group's rank 0 to the others: collective. kDiffer sends nothing.
/// Not for several threads at once, as generators themselves.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort {

enum class Draws { kAlike, kDiffer };

class COHORT_API ParallelDraws {
 public:
  /// For the default generator of `device`. `group`: if null, the default group; a rank that is alone draws as rank 0 does.
  /// Throws what LibTorch throws for a device without a generator.
  explicit ParallelDraws(Draws draws, const Group& group = {}, c10::Device device = c10::Device(c10::DeviceType::CPU));
  ~ParallelDraws();
  ParallelDraws(const ParallelDraws&) = delete;
  ParallelDraws& operator=(const ParallelDraws&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;  // at the end
};

}  // namespace cohort
