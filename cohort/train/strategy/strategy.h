/// Strategy: how ranks or devices share the training of a model of any type. A Trainer and an Accelerator (accelerator.h) put one
/// around the model.
///
/// Collective: make_strategy, and with "fsdp" run(). Thread-safety: as torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace torch::optim {
class Optimizer;
}

namespace cohort::train {

struct StrategyOptions;

namespace detail {
struct LaunchPlace;
}

class COHORT_API Strategy {
 public:
  using Forward = std::function<at::Tensor(torch::nn::Module& net, const at::Tensor& input)>;

  explicit Strategy(std::shared_ptr<torch::nn::Module> net) : net_(std::move(net)) {}
  virtual ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// The user's module.
  torch::nn::Module& net() const { return *net_; }
  /// The module for state dicts, which knows which parameters are sharded.
  virtual torch::nn::Module& module() const { return *net_; }
  /// The parameters that the optimizer has, with the names of the user's module.
  virtual std::vector<std::pair<std::string, at::Tensor>> named_parameters() const;
  std::vector<at::Tensor> parameters() const;
  /// Makes an optimizer of the user's module one of parameters(), and moves its state to their device. Throws c10::ValueError if
  /// it has made steps already and parameters() differ from the module's.
  virtual void adopt(torch::optim::Optimizer& optimizer) const;

  /// Calls `body`, which runs the module and returns the tensors that backward begins with. `inputs`: the module's input tensors;
  /// "fsdp" may replace them.
  virtual void run(std::vector<at::Tensor>& inputs, const std::function<std::vector<at::Tensor>()>& body);
  /// Returns the module's output. With "data_parallel" `forward` runs on replicas.
  virtual at::Tensor forward(const at::Tensor& input, const Forward& forward);
  /// If false, only forward() works, as the model is not one module.
  virtual bool runs_whole_steps() const { return true; }
  /// The dtype to which floating-point outputs are converted; forward() does it itself. If absent, they keep theirs.
  virtual std::optional<at::ScalarType> output_dtype() const { return std::nullopt; }
  /// Whether evaluation is collective, too, so that ranks must make the same number of forward passes.
  virtual bool evaluates_together() const { return false; }

  /// If false, backward does not reduce gradients, which add up.
  virtual void set_requires_gradient_sync(bool) {}
  /// Drops gradients that belong to no step, also those that have not been reduced over the ranks yet.
  virtual void drop_gradients();
  /// Sends rank 0's buffers, such as the means of batch norm, to all ranks at once if the next forward pass of training would do
  /// so. Collective.
  virtual void synchronize_buffers() {}
  /// Whether each rank has and keeps its own buffers.
  virtual bool has_own_buffers() const { return false; }
  /// How long all steps so far have waited for other ranks, without backward. If absent, it is not known.
  virtual std::optional<std::chrono::nanoseconds> communication_time() const { return std::nullopt; }

 private:
  std::shared_ptr<torch::nn::Module> net_;
};

/// Calls strategy.adopt(). Throws c10::ValueError if the optimizer has none of the model's parameters. `user`: named in the
/// error.
void adopt_optimizer(const Strategy& strategy, torch::optim::Optimizer& optimizer, const char* user);

/// Moves the module to its device and puts the strategy around it.
std::unique_ptr<Strategy> make_strategy(std::shared_ptr<torch::nn::Module> net, const StrategyOptions& options,
                                        const detail::LaunchPlace& place);

}  // namespace cohort::train
