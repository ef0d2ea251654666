/// Schedulers of schedulers, of one optimizer. See scheduler_base.h.
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

/// One after the other: from milestone i on the one after it, which begins there. Step this one only.
class COHORT_API SequentialLR final : public LRScheduler {
 public:
  /// Throws c10::ValueError for none, for another number of milestones than there are changes, for a ReduceLROnPlateau, for one
  /// of another optimizer, and for schedulers of schedulers behind the first (which PyTorch refuses when their turn comes).
  SequentialLR(torch::optim::Optimizer& optimizer, SchedulerList schedulers, std::vector<int64_t> milestones);

  void step() override;

 private:
  Fields fields() override;
  void undo() override;
  bool has_restart() const override { return false; }

  SchedulerList schedulers_;
  std::vector<int64_t> milestones_;
};

/// All of them in each step, in this order. Step this one only.
class COHORT_API ChainedScheduler final : public LRScheduler {
 public:
  /// Throws c10::ValueError for none, for a ReduceLROnPlateau, and for schedulers of different optimizers.
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
