/// Activation checkpointing: backward recomputes tensors that forward would otherwise keep.
///
///     at::Tensor y = cohort::activation::checkpoint([&](const at::Tensor& x) { return block->forward(x); }, x);
///     y = cohort::activation::checkpoint({.preserve_rng_state = false}, block, x);    // options first
///     y = cohort::activation::checkpoint_sequential(*layers, /*segments=*/4, x);
///
/// Losses and gradients are the same as without it, bit for bit, if `function` does the same each time. It runs in forward, which
/// keeps only its arguments, and again, with autocast and random numbers as they were, when backward first needs a tensor of it.
/// That run ends as soon as all needed tensors are there, with an exception that passes through `function`.
/// - Arguments: tensors, and lists, maps, pairs, tuples and optionals of them; others are copied. Things that `function` captures
///   are not freed, and neither are tensors in types that parallel/module/tensor_tree.h cannot move, such as IValue.
/// - `function` is copied (unless you pass std::ref), lives as long as the graph, and may run in a thread of backward.
/// - Checkpoints may be nested, may have several backward passes (each runs the function again), and work with every kind of
///   DistributedDataParallel; `function` must not run replicas of DataParallel. `use_reentrant` chooses PyTorch's older variant:
///   see CheckpointOptions.
/// - Without gradients (at::NoGradGuard) `function` just runs.
/// Throws what `function` throws, also from backward; CheckpointError from backward if the second run saves other tensors.
/// Texts, order and number of runs follow torch/utils/checkpoint.py. Differences are listed in docs/parity.md.
/// Thread-safety: as the function; checkpoints in different threads share only the default generators.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/activation/checkpoint_call.h"
#include "cohort/parallel/activation/checkpoint_options.h"

namespace torch::nn {
class SequentialImpl;
}

namespace cohort::activation {

/// Returns the result of `function(inputs...)`.
template <class Function, class... Inputs>
requires std::invocable < std::decay_t<Function>
&, Inputs... > auto checkpoint(const CheckpointOptions& options, Function&& function, Inputs&&... inputs) {
  using Call = activation::StoredCall<std::decay_t<Function>, Inputs&&...>;
  using Result = std::decay_t<std::invoke_result_t<std::decay_t<Function>&, Inputs...>>;
  static_assert(!std::is_void_v<Result>, "a checkpointed function must return the tensors that it computes");
  using activation::Tensors;
  const auto call = std::make_shared<Call>(std::forward<Function>(function), inputs...);
  const Tensors tensors = call->take_tensors();
  std::optional<Result> result;
  const auto forward = [&] { result.emplace(call->forward(std::forward<Inputs>(inputs)...)); };
  if (!options.use_reentrant) {
    activation::run_checkpointed(options, tensors, forward, [call](const Tensors& again) { call->again(again); });
    return std::move(*result);
  }
  const auto tensors_in = [](const Result& value) {
    Tensors found;
    parallel::move_tensors(value, activation::TakeTensors{&found, {}});
    return found;
  };
  const Tensors outputs = activation::run_reentrant(
      options, tensors,
      [&] {
        forward();
        return tensors_in(*result);
      },
      [call, tensors_in](const Tensors& again) { return tensors_in(call->again(again)); });
  size_t next = 0;
  return parallel::move_tensors(std::move(*result), activation::PutTensors{&outputs, &next});
}

template <class Function, class... Inputs>
requires std::invocable < std::decay_t<Function>
&, Inputs... > auto checkpoint(Function&& function, Inputs&&... inputs) {
  return checkpoint(CheckpointOptions(), std::forward<Function>(function), std::forward<Inputs>(inputs)...);
}

using TensorFunction = std::function<at::Tensor(const at::Tensor&)>;

/// Runs the functions one after the other, in `segments` parts of equal length. All parts are checkpointed except the last, which
/// has the remaining functions. Throws c10::ValueError unless 1 <= segments <= the number of functions.
COHORT_API at::Tensor checkpoint_sequential(const std::vector<TensorFunction>& functions, int64_t segments,
                                            const at::Tensor& input, const CheckpointOptions& options = {});
/// The same for the modules of a torch::nn::Sequential, each from a tensor to a tensor.
COHORT_API at::Tensor checkpoint_sequential(torch::nn::SequentialImpl& modules, int64_t segments,
                                            const at::Tensor& input, const CheckpointOptions& options = {});

}  // namespace cohort::activation
