/// Reducer: averages the gradients of a list of parameters over a group, while backward still runs.
///
/// It knows tensors, not modules, so any way of computing a loss can use it: several losses, jit modules, lists of tensors
/// of a simulation code, bindings. One step is
///
///     reducer->prepare(outputs);   // before backward; outputs matter only with find_unused_parameters
///     loss.backward();             // gradients are averaged when it returns
///
/// A step whose backward passes are several, or may skip parameters, ends with finalize(): whatever has no gradient by then
/// counts as unused. Backward passes outside prepare()/finalize() accumulate locally, as under no_sync().
///
/// Semantics follow torch/csrc/distributed/c10d/reducer.cpp: gradients are multiplied by 1 / world size while they enter a
/// bucket, buckets are all-reduced (SUM) strictly in order, and the buckets are rebuilt once, in the order in which gradients
/// became ready. Paper: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
///
/// Thread-safety: one thread at a time, besides the autograd engine's own.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/ddp/options.h"

namespace cohort::ddp {

class GradientEngine;
enum class Reader;

class COHORT_API Reducer {
 public:
  /// Collective: every rank must construct it with the same parameters and options.
  /// Requires leaves that require gradients, each listed once.
  /// Throws c10::Error when the ranks' parameters differ in number, sizes or strides, naming rank and parameter.
  explicit Reducer(std::vector<at::Tensor> parameters, ReducerOptions options = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Optional first half of prepare(), for use before forward: checks the step before and, in the second step, rebuilds the
  /// buckets (Collective then). Throws as prepare().
  void prepare_forward();

  /// Begins a step whose gradients will be reduced.
  /// `outputs`: tensors the loss is computed from; with find_unused_parameters, parameters they do not depend on are known
  /// to be unused at once. Without outputs finalize() tells.
  /// Throws c10::Error when the step before left parameters without gradients; the message names them. (Texts of
  /// Engine::kC10d are LibTorch's: "Expected to have finished reduction in the prior iteration ...".)
  void prepare(const std::vector<at::Tensor>& outputs = {});

  /// Ends a step explicitly: parameters without a gradient count as unused, which needs find_unused_parameters or
  /// static_graph; otherwise throws as prepare(). No effect if backward has already finished the step.
  void finalize();

  /// Parameter indices per bucket, in the order in which the buckets are reduced.
  std::vector<std::vector<size_t>> buckets() const;
  /// True once the buckets follow the order in which gradients became ready.
  bool has_rebuilt_buckets() const;

 private:
  friend class Replica;
  Reducer(std::vector<at::Tensor> parameters, ReducerOptions options, Reader reader);

  std::unique_ptr<GradientEngine> engine_;
  bool is_forward_prepared_ = false;
};

}  // namespace cohort::ddp
