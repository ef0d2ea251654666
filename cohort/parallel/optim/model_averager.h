/// Model averagers: decide when to average the models of ranks that make local steps. Semantics, defaults and texts of
/// torch/distributed/algorithms/model_averaging/{averagers,hierarchical_model_averager}.py.
///
///     optim::PeriodicModelAverager averager(/*period=*/4, /*warmup_steps=*/100);
///     for (...) {
///       ...
///       optimizer.step();
///       averager.average_parameters(net->parameters());   // or (optimizer): all its parameter groups
///     }
///
/// Post-local SGD (Lin et al., arXiv:1808.07217) averages gradients in all steps at first, and afterwards models every few steps;
/// hierarchical SGD (Wang et al., arXiv:2010.12998) averages in groups of different sizes, larger groups less often.
/// Collective: construction of HierarchicalModelAverager (on every rank of the default group), and average_parameters. Parameters
/// without a gradient are skipped, so the ranks must have gradients of the same parameters.
/// Thread-safety: none.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/optim/tensors.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace cohort::optim {

class COHORT_API ModelAverager {
 public:
  virtual ~ModelAverager();

  /// Call it once per step. Averages in the steps that the derived class chooses; then counts the step. Throws as
  /// average_parameters in average_parameters.h.
  void average_parameters(const Tensors& parameters);
  void average_parameters(const torch::optim::Optimizer& optimizer);

  /// The number of steps counted. Save it in checkpoints, so that training continues without another warm-up.
  int64_t step = 0;

 protected:
  /// If null, the default group.
  explicit ModelAverager(Group process_group);
  const Group& process_group() const { return process_group_; }

 private:
  /// Returns the group over which this step averages; null if it does not.
  virtual Group group_of_this_step() const = 0;

  Group process_group_;
};

/// Averages over `process_group` in step `warmup_steps` (steps count from 0) and in every `period`-th step from there on.
class COHORT_API PeriodicModelAverager final : public ModelAverager {
 public:
  /// Throws c10::ValueError for a period below 1 or a negative number of warm-up steps. Warns if the period is 1.
  explicit PeriodicModelAverager(int64_t period, int64_t warmup_steps = 0, Group process_group = {});

 private:
  Group group_of_this_step() const override;

  int64_t period_;
  int64_t warmup_steps_;
};

/// A period, and the number of neighboring ranks that average each time it is over.
using PeriodGroupSize = std::pair<int64_t, int>;

/// From step `warmup_steps` on, averages in each step that one of the periods divides, over the groups of the largest such
/// period.
class COHORT_API HierarchicalModelAverager final : public ModelAverager {
 public:
  /// `period_group_sizes`: from the smallest period and group to the largest; the last group is all of `process_group`.
  /// Collective: makes the smaller groups. Throws c10::ValueError, before it makes any, for an empty list or one with a period
  /// twice, a first period below 1, a last group of another size than `process_group`, a size that does not divide it, or a
  /// negative number of warm-up steps. Warns if the largest period is 1.
  explicit HierarchicalModelAverager(const std::vector<PeriodGroupSize>& period_group_sizes, int64_t warmup_steps = 0,
                                     const Group& process_group = {});

  /// Returns this rank's group for each period, in the given order.
  const std::vector<std::pair<int64_t, Group>>& period_process_groups() const { return groups_; }

 private:
  Group group_of_this_step() const override;

  int64_t warmup_steps_;
  std::vector<std::pair<int64_t, Group>> groups_;
};

}  // namespace cohort::optim
