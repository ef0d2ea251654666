/// Schedulers that combine other schedulers of the same optimizer. See scheduler_base.h.
///
///     auto warm_up = std::make_shared<cohort::optim::LinearLR>(optimizer, 0.1, 1.0, 5);
///     auto cosine = std::make_shared<cohort::optim::CosineAnnealingLR>(optimizer, 95);
///     cohort::optim::SequentialLR scheduler(optimizer, {warm_up, cosine}, {5});
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/export.h"
#include "cohort/train/optim/scheduler_base.h"

namespace cohort::optim {

using SchedulerList = std::vector<std::shared_ptr<LRScheduler>>;

/// Runs schedulers one after the other: from milestone i on, the scheduler i + 1, from its beginning. Step only this scheduler.
class COHORT_API SequentialLR final : public LRScheduler {
 public:
  /// Throws c10::ValueError without schedulers, for a wrong number of milestones, for a ReduceLROnPlateau, for a scheduler of
  /// another optimizer, and for combined schedulers other than the first (which PyTorch refuses when it reaches them).
  SequentialLR(torch::optim::Optimizer& optimizer, SchedulerList schedulers, std::vector<int64_t> milestones);

  void step() override;

 private:
  Fields fields() override;
  void undo() override;
  bool has_restart() const override { return false; }

  SchedulerList schedulers_;
  std::vector<int64_t> milestones_;
};

/// Runs all schedulers in each step, in this order. Step only this scheduler.
class COHORT_API ChainedScheduler final : public LRScheduler {
 public:
  /// Throws c10::ValueError without schedulers, for a ReduceLROnPlateau, and for schedulers of different optimizers.
  explicit ChainedScheduler(SchedulerList schedulers);

  void step() override;
  int64_t last_epoch() const override { return schedulers_.front()->last_epoch(); }

 private:
  Fields fields() override;
  void undo() override;
  bool has_restart() const override { return false; }

  SchedulerList schedulers_;
};

}  // namespace cohort::optim
