/// Schedulers that raise the rates and lower them again, and move momentum (SGD, RMSprop) or beta1 (Adam) the other way. They set
/// the rates of every step, not of every epoch. See scheduler_base.h; options and defaults are PyTorch's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/train/optim/scheduler_base.h"

namespace cohort::optim {

enum class Annealing { kCos, kLinear };

struct OneCycleOptions {
  /// Steps of the cycle. Default: epochs * steps_per_epoch.
  std::optional<int64_t> total_steps = {};
  std::optional<int64_t> epochs = {};
  std::optional<int64_t> steps_per_epoch = {};
  /// The share of the steps in which the rates rise, 0 to 1.
  double pct_start = 0.3;
  Annealing anneal_strategy = Annealing::kCos;
  bool cycle_momentum = true;
  PerGroup base_momentum = 0.85;
  PerGroup max_momentum = 0.95;
  /// The first rate is max_lr / div_factor; the last one is the first one / final_div_factor.
  double div_factor = 25.0;
  double final_div_factor = 1e4;
  /// If true, the rates fall to the first rate in as many steps as they rose, and then to the last rate. If false, they fall in
  /// one phase.
  bool three_phase = false;
};

class COHORT_API OneCycleLR final : public LRScheduler {
 public:
  /// Throws c10::ValueError (PyTorch's texts) for options that cannot work, and if cycle_momentum is set and the optimizer has
  /// neither momentum nor betas.
  OneCycleLR(torch::optim::Optimizer& optimizer, const PerGroup& max_lr, const OneCycleOptions& options);

 private:
  struct Phase {
    double end_step;
    /// Names of notes.
    std::string start_lr, end_lr, start_momentum, end_momentum;
  };

  Rates rates() override;
  Fields settings() override;
  void note_rates(const PerGroup& max_lr, const OneCycleOptions& options);
  double anneal(double from, double to, double part) const;
  double annealed_note(size_t group, const std::string& from, const std::string& to, double part) const;
  static std::vector<Phase> phases_of(const OneCycleOptions& options, int64_t total_steps);
  SchedulerField phases_field();

  int64_t total_steps_;
  std::vector<Phase> phases_;
  Annealing annealing_;
  bool cycle_momentum_;
  bool use_beta1_ = false;
};

/// kTriangular: all cycles have the same height; kTriangular2: each has half the height of the one before; kExpRange: gamma ^
/// step times the height.
enum class CyclicMode { kTriangular, kTriangular2, kExpRange };
/// The argument of scale_fn: the number of the cycle, from 1, or of the step.
enum class ScaleMode { kCycle, kIterations };

struct CyclicOptions {
  int64_t step_size_up = 2000;
  /// Default: step_size_up.
  std::optional<int64_t> step_size_down = {};
  CyclicMode mode = CyclicMode::kTriangular;
  double gamma = 1.0;
  /// Replaces `mode`: the factor of the cycle's height.
  std::function<double(double)> scale_fn = {};
  ScaleMode scale_mode = ScaleMode::kCycle;
  bool cycle_momentum = true;
  PerGroup base_momentum = 0.8;
  PerGroup max_momentum = 0.9;
};

class COHORT_API CyclicLR final : public LRScheduler {
 public:
  /// Throws like OneCycleLR.
  CyclicLR(torch::optim::Optimizer& optimizer, const PerGroup& base_lr, const PerGroup& max_lr,
           const CyclicOptions& options = {});

 private:
  Rates rates() override;
  Fields settings() override;
  Fields functions() override;
  double scale(double cycle) const;

  Rates max_lrs_;
  double total_size_;
  double step_ratio_;
  CyclicMode mode_;
  double gamma_;
  std::function<double(double)> scale_fn_;
  ScaleMode scale_mode_;
  bool cycle_momentum_;
  bool use_beta1_ = false;
  std::vector<double> base_momentums_;
  std::vector<double> max_momentums_;
};

}  // namespace cohort::optim
