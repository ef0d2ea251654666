/// A task: the model, loss and optimizer that a Trainer trains. Any struct with some of these members is a task, or Task below:
///
///     struct Classify {
///       cohort::models::ResNet model = cohort::models::resnet18({.num_classes = 10});
///       cohort::optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
///       at::Tensor loss(const at::Tensor& scores, const at::Tensor& labels) { return F::cross_entropy(scores, labels); }
///     };
///
/// | member | what it is |
/// | `model` | a module: its holder, such as torch::nn::Linear, or a std::shared_ptr of it |
/// | `optimizer` | a torch::optim::Optimizer, or a pointer to one; only fit() needs it |
/// | `loss(output, target)` | a tensor of one element; batches are pairs, tuples or structs (input, target) |
/// | `step(net, batch)` | instead of `loss`: forward and loss of any batch; a tensor of one element, or a StepOutput |
/// | `evaluate(net, batch)` | as `step`, if evaluation differs from training, as with a `pipeline` |
/// | `predict(net, batch)` | for Trainer::predict; default: model(input), but not where the model is a stage |
/// | `schedulers` | a std::vector<Schedule> |
/// | `pipeline` | if the model is a stage: a pointer to the PipelineSchedule that `step` and `evaluate` run (pipeline_step.h) |
/// | `metrics` | a std::vector<TaskMetric>, over StepOutput's output and target |
///
/// `net` is the module itself. The Trainer runs `step` under its strategy, so `net` must not be wrapped or called elsewhere.
/// Thread-safety: none; with data_parallel several replicas of the model run at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/data/loader/collate.h"
#include "cohort/export.h"
#include "cohort/train/strategy/schedule_handle.h"
#include "cohort/train/strategy/task_metric.h"

namespace torch::optim {
class Optimizer;
}

namespace cohort {
class PipelineSchedule;
}

namespace cohort::train {

struct StepOutput {
  at::Tensor loss;         ///< one element, the mean over the batch
  at::Tensor output = {};  ///< the metrics' input; if undefined, none are computed
  at::Tensor target = {};
};

/// A task with functions as members, for the common case.
template <class Model>
struct Task {
  Model model;
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> loss = {};
  torch::optim::Optimizer* optimizer = nullptr;
  std::vector<Schedule> schedulers = {};
  std::vector<TaskMetric> metrics = {};
};

namespace detail {

/// A task without types.
struct ErasedTask {
  using Net = torch::nn::Module;
  std::shared_ptr<Net> model;
  torch::optim::Optimizer* optimizer = nullptr;
  std::vector<Schedule> schedulers;
  std::vector<TaskMetric> metrics;
  PipelineSchedule* pipeline = nullptr;  ///< if null, the Trainer runs backward after `step`

  /// A task has either these three, or `step` and `evaluate`; with a pipeline `evaluate` may be null. `predict` may be null.
  std::function<at::Tensor(void* batch)> input_of;
  std::function<at::Tensor(Net& net, const at::Tensor& input)> forward;
  std::function<StepOutput(const at::Tensor& output, void* batch)> loss_of;
  std::function<StepOutput(Net& net, void* batch)> step;
  std::function<StepOutput(Net& net, void* batch)> evaluate;
  std::function<at::Tensor(Net& net, void* batch)> predict;
};

template <class Model>
auto module_of(const Model& model) {
  if constexpr (requires { model.ptr(); }) {
    return model.ptr();
  } else {
    return model;
  }
}
template <class T>
using NetOf = typename std::remove_cvref_t<decltype(module_of(std::declval<T&>().model))>::element_type;

// `member`: the optimizer itself, or a pointer to it.
template <class Member>
torch::optim::Optimizer* optimizer_of(Member& member) {
  if constexpr (std::is_pointer_v<Member>) {
    return member;
  } else if constexpr (requires { member.param_groups(); }) {
    return &member;
  } else {
    return member ? &*member : nullptr;
  }
}

// Returns the first or the second part of a batch.
template <size_t kPart, class Batch>
at::Tensor part_of_batch(Batch& batch) {
  if constexpr (requires { std::get<kPart>(batch); }) {
    return std::get<kPart>(batch);
  } else if constexpr (requires {
                         batch.data;
                         batch.target;
                       }) {
    return kPart == 0 ? batch.data : batch.target;
  } else {
    return std::get<kPart>(data::detail::fields_of(batch));
  }
}
template <class Batch>
concept InputAndTarget = requires(Batch& batch) {
  { part_of_batch<0>(batch) } -> std::convertible_to<at::Tensor>;
  { part_of_batch<1>(batch) } -> std::convertible_to<at::Tensor>;
};

inline StepOutput as_step_output(StepOutput output) { return output; }
inline StepOutput as_step_output(at::Tensor loss) { return {std::move(loss)}; }

COHORT_API void refuse_missing_loss();

// Erases a task whose model takes the first part of a batch.
template <class T, class Batch>
void erase_parts(T& task, ErasedTask& erased) {
  using Net = NetOf<T>;
  erased.input_of = [](void* batch) { return part_of_batch<0>(*static_cast<Batch*>(batch)); };
  erased.forward = [](torch::nn::Module& net, const at::Tensor& input) -> at::Tensor {
    return dynamic_cast<Net&>(net).forward(input);
  };
  if constexpr (requires { static_cast<bool>(task.loss); }) {
    if (!task.loss) refuse_missing_loss();
  }
  erased.loss_of = [&task](const at::Tensor& output, void* batch) -> StepOutput {
    const at::Tensor target = part_of_batch<1>(*static_cast<Batch*>(batch));
    return {task.loss(output, target), output, target};
  };
}

template <class T, class Batch>
void erase_steps(T& task, ErasedTask& erased) {
  using Net = NetOf<T>;
  erased.step = [&task](torch::nn::Module& net, void* batch) {
    return as_step_output(task.step(dynamic_cast<Net&>(net), *static_cast<Batch*>(batch)));
  };
  if (!erased.pipeline) erased.evaluate = erased.step;  // a pipeline's step runs backward, too
}

/// `task` must live as long as what is returned.
template <class Batch, class T>
ErasedTask erase(T& task) {
  using Net = NetOf<T>;
  ErasedTask erased;
  erased.model = module_of(task.model);
  if constexpr (requires { task.optimizer; }) erased.optimizer = optimizer_of(task.optimizer);
  if constexpr (requires { task.schedulers; }) erased.schedulers = task.schedulers;
  if constexpr (requires { task.metrics; }) erased.metrics = task.metrics;
  if constexpr (requires { task.pipeline; }) erased.pipeline = task.pipeline ? &*task.pipeline : nullptr;
  if constexpr (requires(Net & net, Batch & batch) { task.step(net, batch); }) {
    erase_steps<T, Batch>(task, erased);
  } else {
    static_assert(InputAndTarget<Batch>,
                  "a task needs step(net, batch), unless batches are (input, target) of tensors");
    static_assert(
        requires(const at::Tensor& tensor) { task.loss(tensor, tensor); },
        "a task needs loss(output, target) or step(net, batch)");
    erase_parts<T, Batch>(task, erased);
  }
  if constexpr (requires(Net & net, Batch & batch) { task.evaluate(net, batch); }) {
    erased.evaluate = [&task](torch::nn::Module& net, void* batch) {
      return as_step_output(task.evaluate(dynamic_cast<Net&>(net), *static_cast<Batch*>(batch)));
    };
  }
  if constexpr (requires(Net & net, Batch & batch) { task.predict(net, batch); }) {
    erased.predict = [&task](torch::nn::Module& net, void* batch) -> at::Tensor {
      return task.predict(dynamic_cast<Net&>(net), *static_cast<Batch*>(batch));
    };
  } else if constexpr (requires(Net & net, Batch & batch) {
                         net.forward(part_of_batch<0>(batch));
                         task.step(net, batch);
                       }) {
    if (erased.pipeline) return erased;  // a stage's output is not a prediction
    erased.predict = [](torch::nn::Module& net, void* batch) -> at::Tensor {
      return dynamic_cast<Net&>(net).forward(part_of_batch<0>(*static_cast<Batch*>(batch)));
    };
  }
  return erased;
}

}  // namespace detail
}  // namespace cohort::train
