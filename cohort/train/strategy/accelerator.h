/// Accelerator: puts strategy, precision and gradient accumulation around a model, its optimizer and its data, for training loops
/// written by hand, as Hugging Face's Accelerate does.
///
///     cohort::train::Accelerator accelerator({.precision = "bf16-mixed", .gradient_accumulation_steps = 4});
///     auto [model, optimizer, loader] = accelerator.prepare(net, adamw, data_loader);
///     for (int epoch = 0; epoch < 3; ++epoch) {
///       for (auto& [input, target] : loader) {
///         accelerator.accumulate();                          // decides whether this batch ends a step
///         accelerator.backward(cross_entropy(model(input), target));
///         if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(1.0);
///         optimizer.step();                                  // this and the next line do nothing within a step
///         optimizer.zero_grad();
///       }
///     }
///
/// The same program runs alone and under a launcher. Collective: every rank makes the same calls. Thread-safety: none.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cohort/data/loader/tensors_of.h"
#include "cohort/export.h"
#include "cohort/parallel/module/tensor_tree.h"
#include "cohort/train/strategy/batch_feed.h"
#include "cohort/train/strategy/precision.h"
#include "cohort/train/strategy/prepared_loader.h"
#include "cohort/train/strategy/strategy.h"
#include "cohort/train/strategy/task.h"
#include "cohort/train/strategy/trainer_options.h"

namespace cohort::train {

struct AcceleratorOptions {
  StrategyOptions strategy = {};
  /// As TrainerOptions::precision.
  std::string precision = "32";
  /// Batches whose gradients are summed up for a step, each divided by this number.
  int64_t gradient_accumulation_steps = 1;
  /// Seeds the order of the data.
  int64_t seed = 0;
};

class COHORT_API Accelerator {
 public:
  /// Throws the same errors as Trainer's constructor.
  explicit Accelerator(AcceleratorOptions options = {});
  ~Accelerator();
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  /// `net`: a holder or a std::shared_ptr. `optimizer`: an optimizer of its parameters that has not made a step yet. `loader`: a
  /// data::DataLoader. Returns a Model, an Optimizer and a PreparedLoader; the Accelerator and `optimizer` must outlive them. An
  /// Accelerator has one model and one optimizer; prepare_loader() prepares any number of further loaders.
  template <class Net, class Loader>
  auto prepare(const Net& net, torch::optim::Optimizer& optimizer, const Loader& loader);
  /// Shards training data equally among the ranks, in a new order in each epoch if the loader shuffles. For an iterable dataset
  /// the loop ends on all ranks as soon as one rank has no more batches. If `is_training` is false, each sample comes once, and
  /// with "ddp" the loop begins by sending rank 0's buffers, such as the means of batch norm, to all ranks. Collective: the
  /// beginning of a loop.
  template <class Loader>
  auto prepare_loader(const Loader& loader, bool is_training = true);

  /// Call it once for each batch, before its forward pass.
  void accumulate();
  /// Whether the batch ends a step: gradients are averaged over the ranks, and the optimizer steps.
  bool sync_gradients() const { return sync_gradients_; }
  /// Runs backward from the loss, divided by gradient_accumulation_steps, and scaled if the precision needs it.
  void backward(const at::Tensor& loss);
  /// Clips all gradients by their norm over all ranks' shards. Returns the norm before clipping.
  at::Tensor clip_grad_norm_(double max_norm, double norm_type = 2.0);
  void clip_grad_value_(double clip_value);

  int process_index() const;
  int num_processes() const;
  bool is_main_process() const { return process_index() == 0; }
  c10::Device device() const;
  /// Prints on rank 0.
  void print(std::string_view text) const;
  void wait_for_everyone() const;
  /// Returns the tensors of all ranks, which have equal shapes, concatenated along dimension 0, on all ranks.
  at::Tensor gather(const at::Tensor& tensor) const;
  /// Returns the sum, or the mean, over the ranks.
  at::Tensor reduce(const at::Tensor& tensor, const std::string& reduction = "mean") const;

  /// Throws c10::ValueError before prepare().
  Strategy& strategy() const;
  Precision& precision() const;

  /// A model that is called like the user's own.
  template <class Net>
  class Model {
   public:
    Model(Accelerator& accelerator, std::shared_ptr<Net> net) : accelerator_(&accelerator), net_(std::move(net)) {}
    /// Converts floating-point tensors among the arguments themselves (not those in lists) to the precision's and strategy's
    /// dtype. With a mixed precision 16-bit results become float32, as the loss is computed without autocast.
    template <class... Arguments>
    auto operator()(Arguments&&... arguments) const;
    /// The user's module.
    Net* operator->() const { return net_.get(); }
    Net& operator*() const { return *net_; }

   private:
    Accelerator* accelerator_;
    std::shared_ptr<Net> net_;
  };

  /// An optimizer that steps only if sync_gradients() is true.
  class COHORT_API Optimizer {
   public:
    Optimizer(Accelerator& accelerator, torch::optim::Optimizer& optimizer)
        : accelerator_(&accelerator), optimizer_(&optimizer) {}
    void step();
    void zero_grad();
    /// False if the last step() did nothing: no step was due, or gradients were not finite with the current scale.
    bool has_stepped() const { return has_stepped_; }
    torch::optim::Optimizer& operator*() const { return *optimizer_; }
    torch::optim::Optimizer* operator->() const { return optimizer_; }

   private:
    Accelerator* accelerator_;
    torch::optim::Optimizer* optimizer_;
    bool has_stepped_ = false;
  };

 private:
  void attach(std::shared_ptr<torch::nn::Module> net, torch::optim::Optimizer& optimizer);
  LoopHooks hooks(bool is_training);
  void check_runs_whole_steps() const;
  void shard_samples_of(BatchFeed& feed, bool is_training) const;

  struct State;
  std::unique_ptr<State> state_;
  int64_t num_accumulated_ = 0;
  bool is_last_batch_ = false;
  bool sync_gradients_ = true;
};

template <class Net, class Loader>
auto Accelerator::prepare(const Net& net, torch::optim::Optimizer& optimizer, const Loader& loader) {
  const auto module = detail::module_of(net);
  attach(module, optimizer);
  using Module = typename std::remove_cvref_t<decltype(module)>::element_type;
  return std::tuple(Model<Module>(*this, module), Optimizer(*this, optimizer), prepare_loader(loader));
}

template <class Loader>
auto Accelerator::prepare_loader(const Loader& loader, bool is_training) {
  PreparedLoader<Loader> prepared(loader, hooks(is_training));
  shard_samples_of(prepared.feed(), is_training);
  return prepared;
}

template <class Net>
template <class... Arguments>
auto Accelerator::Model<Net>::operator()(Arguments&&... arguments) const {
  const auto autocast = accelerator_->precision().autocast();
  Strategy& strategy = accelerator_->strategy();
  using Held = std::tuple<std::decay_t<Arguments>...>;
  Held held(std::forward<Arguments>(arguments)...);
  std::vector<at::Tensor> inputs;
  const auto each_tensor = [&](const auto& use) {
    const auto visit = [&](auto& argument) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(argument)>, at::Tensor>) use(argument);
    };
    std::apply([&](auto&... each) { (visit(each), ...); }, held);
  };
  const auto forward = [&](Net& net) { return std::apply([&](auto&... each) { return net.forward(each...); }, held); };
  each_tensor([&](const at::Tensor& tensor) { inputs.push_back(accelerator_->precision().input(tensor)); });
  using Result = decltype(forward(*net_));
  if constexpr (std::is_same_v<Held, std::tuple<at::Tensor>> && std::is_same_v<Result, at::Tensor>) {
    return accelerator_->precision().output(
        strategy.forward(inputs.front(), [](torch::nn::Module& net, const at::Tensor& input) -> at::Tensor {
          return dynamic_cast<Net&>(net).forward(input);
        }));
  } else {
    accelerator_->check_runs_whole_steps();
    std::optional<Result> result;
    strategy.run(inputs, [&] {
      size_t next = 0;
      each_tensor([&](at::Tensor& tensor) { tensor = inputs[next++]; });
      result.emplace(forward(*net_));
      std::vector<at::Tensor> outputs;
      parallel::collect_tensors(*result, outputs);
      return outputs;
    });
    if (const auto dtype = strategy.output_dtype()) *result = parallel::move_tensors(std::move(*result), *dtype);
    data::detail::for_each_tensor(*result,
                                  [&](at::Tensor& tensor) { tensor = accelerator_->precision().output(tensor); });
    return std::move(*result);
  }
}

}  // namespace cohort::train
