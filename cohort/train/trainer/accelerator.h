/// Accelerator: for loops written by hand: puts strategy, precision and accumulation around a model, its optimizer and its data,
/// as Hugging Face's Accelerate does.
///
///     cohort::train::Accelerator accelerator({.precision = "bf16-mixed", .gradient_accumulation_steps = 4});
///     auto [model, optimizer, loader] = accelerator.prepare(net, adamw, data_loader);
///     for (int epoch = 0; epoch < 3; ++epoch) {
///       for (auto& [input, target] : loader) {
///         accelerator.accumulate();                          // decides whether this batch ends a step
///         accelerator.backward(cross_entropy(model(input), target));
///         if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(1.0);
///         optimizer.step();                                  // these two do nothing where it does not
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
#include "cohort/train/trainer/batch_feed.h"
#include "cohort/train/trainer/precision.h"
#include "cohort/train/trainer/prepared_loader.h"
#include "cohort/train/trainer/strategy.h"
#include "cohort/train/trainer/task.h"
#include "cohort/train/trainer/trainer_options.h"

namespace cohort::train {

struct AcceleratorOptions {
  StrategyOptions strategy = {};
  /// As TrainerOptions::precision.
  std::string precision = "32";
  /// Batches whose gradients are summed up for a step, each divided by this number.
  int64_t gradient_accumulation_steps = 1;
  /// Of the order of data.
  int64_t seed = 0;
};

class COHORT_API Accelerator {
 public:
  /// Throws as Trainer's constructor.
  explicit Accelerator(AcceleratorOptions options = {});
  ~Accelerator();
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  /// `net`: a holder or a std::shared_ptr; `optimizer`: of its parameters, still without a step; `loader`: a data::DataLoader.
  /// The Accelerator and `optimizer` must outlive what is returned: a Model, an Optimizer, a PreparedLoader. One model and one
  /// optimizer for each Accelerator; loaders as many as you like, by prepare_loader.
  template <class Net, class Loader>
  auto prepare(const Net& net, torch::optim::Optimizer& optimizer, const Loader& loader);
  /// Training data is shared out equally, and in a new order in each epoch if the loader shuffles; of an iterable dataset the
  /// loop ends on all ranks where the first one has no more. With `is_training` false each sample comes once, and with "ddp" a
  /// loop begins with rank 0's buffers, such as means of batch norm, on all ranks. Collective where loops begin.
  template <class Loader>
  auto prepare_loader(const Loader& loader, bool is_training = true);

  /// Once for each batch, before its forward pass.
  void accumulate();
  /// True where the batch ends a step: gradients are averaged over the ranks, and the optimizer steps.
  bool sync_gradients() const { return sync_gradients_; }
  /// Of the loss divided by gradient_accumulation_steps, scaled if the precision needs it.
  void backward(const at::Tensor& loss);
  /// Of all gradients, over all ranks' shards. Returns the norm before.
  at::Tensor clip_grad_norm_(double max_norm, double norm_type = 2.0);
  void clip_grad_value_(double clip_value);

  int process_index() const;
  int num_processes() const;
  bool is_main_process() const { return process_index() == 0; }
  c10::Device device() const;
  /// On rank 0.
  void print(std::string_view text) const;
  void wait_for_everyone() const;
  /// Every rank's tensor, of equal shapes, one below the other, on all ranks.
  at::Tensor gather(const at::Tensor& tensor) const;
  /// The sum, or the mean, over the ranks.
  at::Tensor reduce(const at::Tensor& tensor, const std::string& reduction = "mean") const;

  /// Throws c10::ValueError before prepare().
  Strategy& strategy() const;
  Precision& precision() const;

  /// A model that is called as the user's own.
  template <class Net>
  class Model {
   public:
    Model(Accelerator& accelerator, std::shared_ptr<Net> net) : accelerator_(&accelerator), net_(std::move(net)) {}
    /// Floating-point tensors among the arguments themselves (not those in lists) get the precision's and strategy's dtype. With
    /// a mixed precision results of 16 bits become float32, as the loss is computed without autocast.
    template <class... Arguments>
    auto operator()(Arguments&&... arguments) const;
    /// The user's module.
    Net* operator->() const { return net_.get(); }
    Net& operator*() const { return *net_; }

   private:
    Accelerator* accelerator_;
    std::shared_ptr<Net> net_;
  };

  /// Steps where sync_gradients() says so.
  class COHORT_API Optimizer {
   public:
    Optimizer(Accelerator& accelerator, torch::optim::Optimizer& optimizer)
        : accelerator_(&accelerator), optimizer_(&optimizer) {}
    void step();
    void zero_grad();
    /// False: the last step() did nothing, as a step was not due, or gradients were not finite with this scale.
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
  void share(BatchFeed& feed, bool is_training) const;

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
  share(prepared.feed(), is_training);
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
