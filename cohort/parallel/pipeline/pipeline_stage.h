/// PipelineStage: a part of a model on one rank (or, in one process, on one device), and its place in the pipeline.
///
///     auto parts = cohort::pipeline::split_sequential(net, 2);         // or modules of your own
///     cohort::PipelineStage stage(parts[rank], rank, 2);
///     cohort::PipelineSchedule schedule("1F1B", {stage}, 4, {.loss_fn = cohort::loss_of(cross_entropy)});
///
/// A stage's forward takes the result of the stage before, a tensor or a std::vector, tuple or pair of tensors, and then
/// StepOptions::kwargs. The module may be wrapped by DistributedDataParallel or fully_shard, and may have checkpointed blocks. As
/// PipelineStage of torch/distributed/pipelining/stage.py; the first step determines the shapes.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/export.h"
#include "cohort/parallel/module/signature.h"

namespace cohort {

namespace pipeline::detail {

/// Throws c10::ValueError: a forward that takes `expected` tensors got `actual`.
[[noreturn]] COHORT_API void throw_wrong_inputs(size_t expected, size_t actual);

}  // namespace pipeline::detail

namespace pipeline {

/// Computes the inputs of the next stage from the results of the stage before and StepOptions::kwargs.
using StageForward = std::function<TensorList(const TensorList&)>;

template <class Value>
TensorList tensors_of(Value&& value) {
  using T = std::remove_cvref_t<Value>;
  if constexpr (std::is_convertible_v<T, at::Tensor>) {
    return {std::forward<Value>(value)};
  } else if constexpr (std::is_convertible_v<T, TensorList>) {
    return std::forward<Value>(value);
  } else {
    return std::apply([](auto&&... parts) { return TensorList{parts...}; }, std::forward<Value>(value));
  }
}

template <class Signature>
struct StageCall;

template <class Return, class... Arguments>
struct StageCall<Return(Arguments...)> {
  static constexpr bool kTakesList =
      sizeof...(Arguments) == 1 && (std::is_same_v<std::remove_cvref_t<Arguments>, TensorList> && ...);

  template <class Module>
  static TensorList call(Module& module, const TensorList& inputs) {
    if constexpr (kTakesList) {
      return tensors_of(module.forward(inputs));
    } else {
      if (inputs.size() != sizeof...(Arguments)) detail::throw_wrong_inputs(sizeof...(Arguments), inputs.size());
      return call_each(module, inputs, std::index_sequence_for<Arguments...>());
    }
  }

 private:
  template <class Module, size_t... I>
  static TensorList call_each(Module& module, const TensorList& inputs, std::index_sequence<I...>) {
    return tensors_of(module.forward(std::remove_cvref_t<Arguments>(inputs[I])...));
  }
};

/// If forward is overloaded or a template, it gets one tensor.
template <>
struct StageCall<parallel::NoSignature> {
  template <class Module>
  static TensorList call(Module& module, const TensorList& inputs) {
    if (inputs.size() != 1) detail::throw_wrong_inputs(1, inputs.size());
    return tensors_of(module.forward(inputs.front()));
  }
};

template <class Module>
StageForward forward_of(const std::shared_ptr<Module>& module) {
  return [module](const TensorList& inputs) {
    return StageCall<parallel::ForwardSignature<Module>>::call(*module, inputs);
  };
}

}  // namespace pipeline

struct PipelineStageOptions {
  /// The device on which the stage computes; inputs are moved there. If absent, that of its first parameter, else the CPU.
  std::optional<c10::Device> device = {};
  /// The ranks of the pipeline. If null, the default group; without one, this process alone.
  Group group = {};
  /// Examples of the stage's inputs, without kwargs, and outputs, for one microbatch: only shapes and dtypes matter, so they may
  /// be on device "meta". In training all floating-point ones have gradients. Give them for all stages of a pipeline or for none;
  /// if absent, the first step determines them.
  std::optional<TensorList> input_args = {};
  std::optional<TensorList> output_args = {};
};

class COHORT_API PipelineStage {
 public:
  /// `net`: a module's holder, or a std::shared_ptr to one. Throws c10::ValueError for an index that is not below `num_stages`,
  /// c10::Error if there are more ranks than stages.
  template <class Net>
  PipelineStage(const Net& net, int stage_index, int num_stages, const PipelineStageOptions& options = {})
      : PipelineStage(pointer_to(net), pipeline::forward_of(pointer_to(net)), stage_index, num_stages, options) {}
  /// `forward` may run `module` in any way; the only wrappers (DistributedDataParallel, fully_shard) that it may run are `module`
  /// and those in it.
  PipelineStage(std::shared_ptr<torch::nn::Module> module, pipeline::StageForward forward, int stage_index,
                int num_stages, const PipelineStageOptions& options = {});

  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  TensorList forward(const TensorList& inputs) const { return forward_(inputs); }
  int stage_index() const { return stage_index_; }
  int num_stages() const { return num_stages_; }
  bool is_first() const { return stage_index_ == 0; }
  bool is_last() const { return stage_index_ == num_stages_ - 1; }
  c10::Device device() const { return device_; }
  const Group& group() const { return group_; }
  int group_rank() const { return group_rank_; }
  int group_size() const { return group_size_; }
  const std::optional<TensorList>& input_args() const { return input_args_; }
  const std::optional<TensorList>& output_args() const { return output_args_; }

 private:
  template <class Net>
  static auto pointer_to(const Net& net) {
    if constexpr (requires { net.ptr(); }) {
      return net.ptr();
    } else {
      return net;
    }
  }

  std::shared_ptr<torch::nn::Module> module_;
  pipeline::StageForward forward_;
  int stage_index_, num_stages_;
  c10::Device device_ = c10::kCPU;
  Group group_;
  int group_rank_ = 0, group_size_ = 1;
  std::optional<TensorList> input_args_, output_args_;  ///< without memory
};

}  // namespace cohort
