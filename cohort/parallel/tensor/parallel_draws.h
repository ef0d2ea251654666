/// Random numbers in a model whose ranks work on one batch together: some draws must be alike on all ranks (dropout of what
/// every rank has), some must differ (dropout of what each has a part of).
///
///     {
///       const cohort::ParallelDraws draws(cohort::Draws::kDiffer, tp);
///       hidden = torch::nn::functional::dropout(hidden, 0.1);       // each rank another mask for its columns
///     }
///
/// In the scope the default generator is another one, made from one number that it drew and, with kDiffer, from the rank. At its
/// end it is as it was after that draw, however many numbers were drawn in between. So ranks that were alike remain so; a
/// checkpoint and activation checkpointing need to know of nothing; and a run is repeated by its seed.
///
/// kAlike sends the number of the group's rank 0 to the others: collective. kDiffer sends nothing.
/// Not for several threads at once, as generators are not.
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
  /// Of the default generator of `device`. Null: the default group; a rank that is alone draws as rank 0 does.
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
