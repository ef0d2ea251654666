/// Implements checkpoint() without the types of the function, its arguments and its results.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/activation/checkpoint_options.h"
#include "cohort/parallel/module/tensor_tree.h"

namespace cohort::activation {

using Tensors = std::vector<at::Tensor>;

/// Calls `forward` once, under hooks that free the tensors that autograd saves; `again` repeats it on `inputs` when backward
/// needs them.
COHORT_API void run_checkpointed(const CheckpointOptions& options, const Tensors& inputs,
                                 const std::function<void()>& forward, std::function<void(const Tensors&)> again);

/// Calls `forward` once, without gradients. Returns its results, whose backward repeats it on detached `inputs` with `again`.
COHORT_API Tensors run_reentrant(const CheckpointOptions& options, const Tensors& inputs,
                                 const std::function<Tensors()>& forward, std::function<Tensors(const Tensors&)> again);

/// Places for move_tensors: TakeTensors takes tensors out of a value, PutTensors puts others in, in the same order.
struct TakeTensors {
  Tensors* taken;
  at::Tensor placeholder;
};
inline at::Tensor moved(const at::Tensor& tensor, const TakeTensors& place) {
  place.taken->push_back(tensor);
  return place.placeholder.defined() ? place.placeholder : tensor;
}
struct PutTensors {
  const Tensors* tensors;
  size_t* next;
};
inline at::Tensor moved(const at::Tensor&, const PutTensors& place) { return (*place.tensors)[(*place.next)++]; }

/// Any defined tensor: undefined ones are skipped, in both directions.
COHORT_API const at::Tensor& placeholder_tensor();

/// A function and its arguments without their tensors, which the graph keeps separately.
template <class Function, class... Inputs>
class StoredCall {
 public:
  explicit StoredCall(Function function, const std::decay_t<Inputs>&... inputs)
      : function_(std::move(function)),
        arguments_{parallel::move_tensors(inputs, TakeTensors{&tensors_, placeholder_tensor()})...} {}

  /// Takes the tensors among the arguments. Call it once.
  Tensors take_tensors() { return std::move(tensors_); }

  decltype(auto) forward(Inputs... inputs) { return function_(static_cast<Inputs>(inputs)...); }

  decltype(auto) again(const Tensors& tensors) { return again(tensors, std::index_sequence_for<Inputs...>()); }

 private:
  template <size_t... i>
  decltype(auto) again(const Tensors& tensors, std::index_sequence<i...>) {
    size_t next = 0;
    const PutTensors place{&tensors, &next};
    std::tuple<std::decay_t<Inputs>...> arguments{parallel::move_tensors(std::get<i>(arguments_), place)...};
    return function_(static_cast<Inputs>(std::get<i>(arguments))...);
  }
  Function function_;
  Tensors tensors_;
  std::tuple<std::decay_t<Inputs>...> arguments_;
};

}  // namespace cohort::activation
