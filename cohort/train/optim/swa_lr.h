/// SWALR: goes from the current rates to a fixed one, for stochastic weight averaging (averaged_model.h), like
/// torch.optim.swa_utils.SWALR.
#pragma once

#include <cstdint>

#include "cohort/export.h"
#include "cohort/train/optim/cycle_schedulers.h"
#include "cohort/train/optim/scheduler_base.h"

namespace cohort::optim {

class COHORT_API SWALR final : public LRScheduler {
 public:
  /// Throws c10::ValueError (PyTorch's text) for anneal_epochs below 0.
  SWALR(torch::optim::Optimizer& optimizer, const PerGroup& swa_lr, int64_t anneal_epochs = 10,
        Annealing anneal_strategy = Annealing::kCos);

 private:
  Rates rates() override;
  Fields settings() override;
  double part_at(int64_t epoch) const;

  int64_t anneal_epochs_;
  Annealing annealing_;
};

}  // namespace cohort::optim
