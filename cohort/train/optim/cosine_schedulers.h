/// Schedulers that follow half a cosine. See scheduler_base.h; arguments and defaults are PyTorch's.
#pragma once

#include <cstdint>

#include "cohort/export.h"
#include "cohort/train/optim/scheduler_base.h"

namespace cohort::optim {

/// Goes from the initial rate to eta_min in `t_max` epochs, and back in as many. Throws c10::ValueError for a t_max below 1.
class COHORT_API CosineAnnealingLR final : public LRScheduler {
 public:
  CosineAnnealingLR(torch::optim::Optimizer& optimizer, int64_t t_max, double eta_min = 0.0);

 private:
  Rates rates() override;
  Rates rates_of_restart() override;
  Fields settings() override;

  int64_t t_max_;
  double eta_min_;
};

/// Goes from the initial rate to eta_min in `t_0` epochs, then again from the initial rate, each time in t_mult times as many
/// epochs. Throws c10::ValueError (PyTorch's texts) for a t_0 or t_mult below 1.
class COHORT_API CosineAnnealingWarmRestarts final : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(torch::optim::Optimizer& optimizer, int64_t t_0, int64_t t_mult = 1,
                              double eta_min = 0.0);

  void step() override;
  /// Goes to this epoch, which may be a fraction: step(epoch + batch / num_batches). Throws c10::ValueError for a negative one.
  void step(double epoch);

 private:
  Rates rates() override;
  Fields settings() override;

  int64_t t_0_;
  int64_t t_mult_;
  double eta_min_;
  double t_i_;         ///< epochs of the current period
  double t_cur_ = -1;  ///< epochs since it began
};

}  // namespace cohort::optim
