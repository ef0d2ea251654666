/// Reducer: averages the gradients of a list of parameters over a group, while backward still runs.
///
/// It works on tensors, not modules, so any way of computing a loss can use it: several losses, jit modules, lists of tensors of
/// a simulation code, bindings. One step is
///
///     reducer->prepare(outputs);   // before backward; outputs matter only with find_unused_parameters
///     loss.backward();             // gradients are averaged when it returns
///
/// If a step has several backward passes, or may skip parameters, end it with finalize(): parameters without a gradient by then
/// count as unused. Backward passes outside prepare()/finalize() accumulate locally, as under no_sync().
///
/// Semantics follow torch/csrc/distributed/c10d/reducer.cpp: gradients are multiplied by 1 / world size while they enter a
/// bucket, buckets are all-reduced (SUM) strictly in order, and the buckets are rebuilt once, in the order in which gradients
/// became ready. Paper: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
///
/// Thread-safety: one thread at a time, besides the autograd engine's own threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"
#include "cohort/parallel/ddp/settings/options.h"

namespace torch::optim {
class Optimizer;
}

namespace cohort::ddp {

class FusedStep;
class GradientEngine;
class GradientNorm;
enum class Audience;

class COHORT_API Reducer {
 public:
  /// Collective: every rank must construct it with the same parameters and options.
  /// Requires leaves that require gradients, each listed once.
  /// Throws c10::Error if the ranks' parameters differ in number, sizes or strides, with rank and parameter.
  explicit Reducer(std::vector<at::Tensor> parameters, ReducerOptions options = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Does the first half of prepare(), before forward; optional. Checks the step before and, in the second step, rebuilds the
  /// buckets (then Collective). Throws as prepare().
  void prepare_forward();

  /// Begins a step whose gradients will be reduced.
  /// `outputs`: the tensors from which the loss is computed. With find_unused_parameters, parameters that they do not depend on
  /// are known at once to be unused. Without outputs finalize() finds them.
  /// Throws c10::Error if the step before left parameters without gradients; the message names them. (Texts of Engine::kC10d are
  /// LibTorch's: "Expected to have finished reduction in the prior iteration ...".)
  void prepare(const std::vector<at::Tensor>& outputs = {});

  /// Ends a step explicitly: parameters without a gradient count as unused. This needs find_unused_parameters or static_graph;
  /// otherwise throws as prepare(). No effect if backward has already finished the step.
  void finalize();

  /// From now on `hook` reduces every bucket, instead of an all-reduce; see comm_hook.h. Call it once, and not while backward
  /// runs.
  /// Throws c10::Error otherwise (for the first of these, with PyTorch's text).
  void register_comm_hook(CommHook hook);
  /// `hook`: called with `state` and a GradBucket, returns a CommHookFuture.
  template <class State, class Hook>
  void register_comm_hook(State state, Hook hook) {
    register_comm_hook(bind_state(std::move(state), std::move(hook)));
  }
  /// Registers one of the two hooks that PyTorch has in C++, over the reducer's group (_register_builtin_comm_hook).
  void register_builtin_comm_hook(BuiltinCommHookType comm_hook_type);

  /// From now on the end of each backward pass updates the parameters with `optimizer`, bucket by bucket, and releases the
  /// gradients: optimizer.step() and zero_grad() have nothing left to do. See docs/guide/ddp.md. `optimizer` must live as long as
  /// backward passes run.
  /// Call it once, and on every rank.
  /// Throws c10::TypeError and c10::ValueError as FusedStep, and c10::Error on Engine::kC10d, for sparse gradients, and when
  /// called again.
  void fuse_step(torch::optim::Optimizer& optimizer);
  bool steps_optimizer() const { return fused_step_ != nullptr; }

  /// From now on each step's reduction computes the norm of order `norm_type` of all averaged gradients, which gradient_norm()
  /// returns: for clip_grads_with_norm_ (parallel/optim/clip_grad.h), without another pass over them. Call it once, and on every
  /// rank.
  /// Throws as fuse_step, with which it cannot be combined, c10::ValueError unless `norm_type` is positive, and
  /// c10::NotImplementedError for shards of tensor-parallel layers.
  void track_gradient_norm(double norm_type = 2.0);
  /// Returns a 0-dimensional tensor, the same on every rank; with a communication hook, the norm of this rank's gradients.
  /// Throws c10::Error if no step has ended since track_gradient_norm().
  at::Tensor gradient_norm() const;

  /// Reduces over `group` from now on, for example after ranks were lost. Forgets an unfinished step and makes new buckets.
  /// Collective over `group`; a rank that is not a member only forgets the step. Not while backward runs.
  /// Does not make parameters equal again: with fuse_step some ranks may have updated parameters that others have not, so load a
  /// checkpoint or broadcast them. The state of a communication hook keeps its group, except for the built-in hooks.
  void update_process_group(const Group& group);
  /// Leaves gradients local from now on, for good (PyTorch's _remove_autograd_hooks).
  void remove_autograd_hooks();

  /// Parameter indices per bucket, in the order in which the buckets are reduced.
  std::vector<std::vector<size_t>> buckets() const;
  /// Whether the buckets follow the order in which gradients became ready.
  bool has_rebuilt_buckets() const;

 private:
  friend class Replica;
  friend class LoggingData;
  friend class ReplicaJoinHook;
  // `gradient_dtype`: see EngineInput.
  Reducer(std::vector<at::Tensor> parameters, ReducerOptions options, Audience audience,
          std::optional<at::ScalarType> gradient_dtype);
  bool tracks_gradient_norm() const { return gradient_norm_ != nullptr; }
  bool needs_outputs() const;
  bool is_expecting() const;
  // Another backward pass will come, of a forward pass that was prepared before.
  void prepare_again();
  void check_not_observed() const;
  // For Join, see parallel/module/join.h: divides the next step's gradients by `num_live`, the number of ranks that have data,
  // which the completed work `count` has found.
  void divide_by_live_ranks(const c10::intrusive_ptr<c10d::Work>& count, int num_live);
  void install_futures(const std::vector<CommHookFuture>& futures);
  // On a rank without data, after prepare_forward(): takes part in the reduction of the other ranks' step, with zeros.
  void shadow_step();

  Group group_;
  std::vector<at::Tensor> parameters_;
  bool expects_sparse_ = false;
  std::unique_ptr<FusedStep> fused_step_;
  std::unique_ptr<GradientNorm> gradient_norm_;
  std::unique_ptr<GradientEngine> engine_;
  bool has_comm_hook_ = false;
  std::string comm_hook_name_;  // see logging_data.h
  bool is_forward_prepared_ = false;
};

}  // namespace cohort::ddp
