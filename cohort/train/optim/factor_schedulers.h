/// Schedulers that multiply the rates by factors. See scheduler_base.h; arguments and defaults are PyTorch's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "cohort/export.h"
#include "cohort/train/optim/scheduler_base.h"

namespace cohort::optim {

/// Returns the factor of an epoch.
using RateFactor = std::function<double(int64_t epoch)>;

/// Sets the initial rate times `lr_lambda(epoch)`, with one function for all groups, or one for each. The state has no functions.
class COHORT_API LambdaLR final : public LRScheduler {
 public:
  LambdaLR(torch::optim::Optimizer& optimizer, const RateFactor& lr_lambda);
  /// Throws c10::ValueError (PyTorch's text) if there are more or fewer functions than groups.
  LambdaLR(torch::optim::Optimizer& optimizer, std::vector<RateFactor> lr_lambdas);

 private:
  Rates rates() override;
  Fields functions() override;

  std::vector<RateFactor> lr_lambdas_;
};

/// Multiplies the rate by `lr_lambda(epoch)` in each step, from epoch 1 on. Otherwise like LambdaLR.
class COHORT_API MultiplicativeLR final : public LRScheduler {
 public:
  MultiplicativeLR(torch::optim::Optimizer& optimizer, const RateFactor& lr_lambda);
  MultiplicativeLR(torch::optim::Optimizer& optimizer, std::vector<RateFactor> lr_lambdas);

 private:
  Rates rates() override;
  Fields functions() override;

  std::vector<RateFactor> lr_lambdas_;
};

/// Multiplies the rate by gamma every `step_size` epochs. Throws c10::ValueError for a step_size below 1.
class COHORT_API StepLR final : public LRScheduler {
 public:
  StepLR(torch::optim::Optimizer& optimizer, int64_t step_size, double gamma = 0.1);

 private:
  Rates rates() override;
  Rates rates_of_restart() override { return base_lrs_; }
  Fields settings() override;

  int64_t step_size_;
  double gamma_;
};

/// Multiplies the rate by gamma at each milestone, as often as it is listed.
class COHORT_API MultiStepLR final : public LRScheduler {
 public:
  MultiStepLR(torch::optim::Optimizer& optimizer, const std::vector<int64_t>& milestones, double gamma = 0.1);

 private:
  Rates rates() override;
  Rates rates_of_restart() override;
  Fields settings() override;

  std::map<int64_t, int64_t> milestones_;  ///< milestone to its number of occurrences
  double gamma_;
};

/// Sets the initial rate times `factor` until `total_iters` epochs have passed. Throws c10::ValueError for a factor outside [0,
/// 1].
class COHORT_API ConstantLR final : public LRScheduler {
 public:
  explicit ConstantLR(torch::optim::Optimizer& optimizer, double factor = 1.0 / 3, int64_t total_iters = 5);

 private:
  Rates rates() override;
  Rates rates_of_restart() override;
  Fields settings() override;

  double factor_;
  int64_t total_iters_;
};

/// Warms up: multiplies the initial rate by a factor that goes linearly from start_factor to end_factor in `total_iters` epochs.
/// Throws c10::ValueError for a start_factor outside (0, 1] and an end_factor outside [0, 1].
class COHORT_API LinearLR final : public LRScheduler {
 public:
  explicit LinearLR(torch::optim::Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1.0,
                    int64_t total_iters = 5);

 private:
  Rates rates() override;
  Rates rates_of_restart() override;
  Fields settings() override;

  double start_factor_;
  double end_factor_;
  int64_t total_iters_;
};

/// Multiplies the rate by gamma in each epoch.
class COHORT_API ExponentialLR final : public LRScheduler {
 public:
  ExponentialLR(torch::optim::Optimizer& optimizer, double gamma);

 private:
  Rates rates() override;
  Rates rates_of_restart() override { return base_lrs_; }
  Fields settings() override;

  double gamma_;
};

/// Sets the initial rate times (1 - epoch / total_iters) ^ power, and 0 after that.
class COHORT_API PolynomialLR final : public LRScheduler {
 public:
  explicit PolynomialLR(torch::optim::Optimizer& optimizer, int64_t total_iters = 5, double power = 1.0);

 private:
  Rates rates() override;
  Rates rates_of_restart() override;
  Fields settings() override;

  int64_t total_iters_;
  double power_;
};

}  // namespace cohort::optim
