/// Strategy: how the ranks, or devices, share the training of a model, whatever the type of the model: what a Trainer and an
/// Accelerator (accelerator.h) put around it.
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
  /// What state dicts are made of: it knows which parameters are in shards.
  virtual torch::nn::Module& module() const { return *net_; }
  /// What the optimizer has; names as the user's module has them.
  virtual std::vector<std::pair<std::string, at::Tensor>> named_parameters() const;
  std::vector<at::Tensor> parameters() const;
  /// An optimizer of the user's module becomes one of parameters(), and what it has kept goes to their device. Throws
  /// c10::ValueError for one that has made steps already, where parameters() are others.
  virtual void adopt(torch::optim::Optimizer& optimizer) const;

  /// Calls `body`, which runs the module and returns what backward begins with. `inputs`: tensors that the module will get; with
  /// "fsdp" they may be replaced.
  virtual void run(std::vector<at::Tensor>& inputs, const std::function<std::vector<at::Tensor>()>& body);
  /// The module's output. With "data_parallel" `forward` runs on replicas.
  virtual at::Tensor forward(const at::Tensor& input, const Forward& forward);
  /// False: only forward() works, as the model is not one module.
  virtual bool runs_whole_steps() const { return true; }
  /// What floating-point outputs of the model are made; nothing: they stay as they are. forward() does it itself.
  virtual std::optional<at::ScalarType> output_dtype() const { return std::nullopt; }
  /// True: evaluation, too, is collective, so ranks must make equally many forward passes.
  virtual bool evaluates_together() const { return false; }

  /// False: gradients stay where they are, and add up.
  virtual void set_synchronises_gradients(bool) {}
  /// Lets go of gradients that are no step's, also those that wait to be summed up over the ranks.
  virtual void drop_gradients();
  /// Where the next forward pass of training begins with rank 0's buffers, such as means of batch norm, all ranks have them at
  /// once. Collective.
  virtual void synchronise_buffers() {}
  /// True: buffers are each rank's own, and stay so.
  virtual bool has_own_buffers() const { return false; }
  /// For how long steps so far have waited for other ranks, backward not counted; nothing: not known.
  virtual std::optional<std::chrono::nanoseconds> communication_time() const { return std::nullopt; }

 private:
  std::shared_ptr<torch::nn::Module> net_;
};

/// strategy.adopt(). Throws c10::ValueError for an optimizer that has none of the model's parameters. `user`: whom it names.
void adopt_optimizer(const Strategy& strategy, torch::optim::Optimizer& optimizer, const char* user);

/// Moves the module to its device and puts the strategy around it.
std::unique_ptr<Strategy> make_strategy(std::shared_ptr<torch::nn::Module> net, const StrategyOptions& options,
                                        const detail::LaunchPlace& place);

}  // namespace cohort::train
