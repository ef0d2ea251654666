/// Schedulers that raise the rates and let them fall, and move momentum (SGD, RMSprop) or beta1 (Adam) the other way.
/// See scheduler_base.h; options and defaults are PyTorch's. They set the rates of every step, not of every epoch.
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
  /// Of the cycle; else epochs * steps_per_epoch.
  std::optional<int64_t> total_steps = {};
  std::optional<int64_t> epochs = {};
  std::optional<int64_t> steps_per_epoch = {};
  /// Which part of the steps the rates rise in, 0 to 1.
  double pct_start = 0.3;
  Annealing anneal_strategy = Annealing::kCos;
  bool cycle_momentum = true;
  PerGroup base_momentum = 0.85;
  PerGroup max_momentum = 0.95;
  /// The first rate is max_lr / div_factor, the last one that divided by final_div_factor.
  double div_factor = 25.0;
  double final_div_factor = 1e4;
  /// Down to the first rate in as many steps as up, and then to the last; else in one.
  bool three_phase = false;
};

class COHORT_API OneCycleLR final : public LRScheduler {
 public:
  /// Throws c10::ValueError (PyTorch's texts) for options that cannot work, and for an optimizer without momentum or betas where
  /// cycle_momentum is set.
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

/// kTriangular: always the same; kTriangular2: half as high in each cycle; kExpRange: gamma ^ step as high.
enum class CyclicMode { kTriangular, kTriangular2, kExpRange };
/// What scale_fn is given: the number of the cycle, from 1 on, or of the step.
enum class ScaleMode { kCycle, kIterations };

struct CyclicOptions {
  int64_t step_size_up = 2000;
  /// Default: step_size_up.
  std::optional<int64_t> step_size_down = {};
  CyclicMode mode = CyclicMode::kTriangular;
  double gamma = 1.0;
  /// In the place of `mode`: which part of its height a cycle has.
  std::function<double(double)> scale_fn = {};
  ScaleMode scale_mode = ScaleMode::kCycle;
  bool cycle_momentum = true;
  PerGroup base_momentum = 0.8;
  PerGroup max_momentum = 0.9;
};

class COHORT_API CyclicLR final : public LRScheduler {
 public:
  /// Throws as OneCycleLR.
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
