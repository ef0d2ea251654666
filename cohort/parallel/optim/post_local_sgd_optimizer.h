/// PostLocalSGDOptimizer: an optimizer's step, then a model averager's. Semantics and texts of
/// torch/distributed/optim/post_localSGD_optimizer.py.
///
///     torch::optim::SGD local(net->parameters(), 0.01);
///     optim::PeriodicModelAverager averager(/*period=*/4, /*warmup_steps=*/100);
///     optim::PostLocalSGDOptimizer optimizer(local, averager);
///     for (...) {
///       optimizer.zero_grad();
///       loss_fn(net(input), target).backward();
///       optimizer.step();
///     }
///     torch::save(optimizer, "optimizer.pt");   // the local optimizer's state, and the averager's step
///
/// It has no parameter groups or state of its own: learning-rate schedulers and checkpoint::save_checkpoint take the local
/// optimizer; save averager().step yourself then.
/// Collective: step(), if the averager averages. Thread-safety: none.
#pragma once

#include <functional>

#include "cohort/export.h"
#include "cohort/parallel/optim/model_averager.h"

namespace torch::optim {
class Optimizer;
class OptimizerParamGroup;
}  // namespace torch::optim

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace cohort::optim {

class COHORT_API PostLocalSGDOptimizer {
 public:
  /// Both must live as long as this object.
  PostLocalSGDOptimizer(torch::optim::Optimizer& optimizer, ModelAverager& averager)
      : optimizer_(optimizer), averager_(averager) {}

  /// Makes the local step, then the averager's.
  void step();
  void zero_grad(bool set_to_none = true);
  void add_param_group(const torch::optim::OptimizerParamGroup& param_group);

  torch::optim::Optimizer& optimizer() const { return optimizer_; }
  ModelAverager& averager() const { return averager_; }

  /// Saves the local optimizer's entries, and one more, "step".
  void save(torch::serialize::OutputArchive& archive) const;
  /// Warns and sets the averager's step to 0 if the archive has no "step", such as one of the local optimizer alone.
  void load(torch::serialize::InputArchive& archive) const;

 private:
  std::reference_wrapper<torch::optim::Optimizer> optimizer_;
  std::reference_wrapper<ModelAverager> averager_;
};

/// For torch::save and torch::load.
COHORT_API torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                       const PostLocalSGDOptimizer& optimizer);
COHORT_API torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                      const PostLocalSGDOptimizer& optimizer);

}  // namespace cohort::optim
