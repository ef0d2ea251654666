/// RNG scopes for a model whose ranks work on one batch together: some random numbers must be equal on all ranks (dropout of a
/// tensor that every rank has), and some must differ (dropout of a tensor of which each rank has a shard).
///
///     {
///       const cohort::parallel::RngScope scope(cohort::parallel::RngStreams::kDifferent, tp);
///       hidden = at::dropout(hidden, 0.1, /*train=*/true);            // each rank another mask for its columns
///     }
///
/// In the scope another generator replaces the default generator. Its seed is one number drawn from the default generator and,
/// with kDifferent, the rank. At the end of the scope the default generator is as it was after that draw, however many numbers
/// were drawn in between. So generators that were equal on all ranks stay equal; checkpoints and activation checkpointing need no
/// extra state; and the same seed repeats a run.
///
/// kSame sends the number of the group's rank 0 to the others: collective. kDifferent sends nothing.
/// Not for several threads at once, as generators themselves.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::parallel {

enum class RngStreams { kSame, kDifferent };

class COHORT_API RngScope {
 public:
  /// For the default generator of `device`. `group`: if null, the default group; a rank that is alone draws as rank 0 does.
  /// Throws what LibTorch throws for a device without a generator.
  explicit RngScope(RngStreams streams, const Group& group = {},
                    c10::Device device = c10::Device(c10::DeviceType::CPU));
  ~RngScope();
  RngScope(const RngScope&) = delete;
  RngScope& operator=(const RngScope&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;  // at the end
};

}  // namespace cohort::parallel
