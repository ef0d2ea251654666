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

/// What an engine offers; make_reducer() picks one by ReducerOptions::engine.
class COHORT_API Reducer {
 public:
  virtual ~Reducer() = default;
  Reducer() = default;
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Begins a step whose gradients will be reduced. Collective in the second step, which rebuilds the buckets.
  /// Throws c10::Error with PyTorch's "Expected to have finished reduction in the prior iteration ..." when the step before
  /// left parameters without gradients; the message names them.
  virtual void prepare(const std::vector<at::Tensor>& outputs = {}) = 0;

  /// Ends a step explicitly: parameters without a gradient count as unused. No effect if backward has already finished it.
  virtual void finalize() = 0;

  /// Parameter indices per bucket, in the order in which the buckets are reduced.
  virtual std::vector<std::vector<size_t>> buckets() const = 0;
  /// True once the buckets follow the order in which gradients became ready.
  virtual bool has_rebuilt_buckets() const = 0;
};

/// Collective: every rank must construct it with the same parameters and options.
/// Throws c10::Error when the ranks' parameters differ in number, sizes or strides, naming rank and parameter.
COHORT_API std::unique_ptr<Reducer> make_reducer(std::vector<at::Tensor> parameters, ReducerOptions options = {});

}  // namespace cohort::ddp
