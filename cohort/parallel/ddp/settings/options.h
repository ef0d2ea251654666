/// Options of DistributedDataParallel and of its untyped core. Defaults are PyTorch's (torch/nn/parallel/distributed.py).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cohort/comm/group/process_group.h"

namespace cohort::ddp {

/// Who buckets and reduces gradients.
enum class Engine {
  kCohort,  ///< our reducer: overlaps with backward, gradients live in the buckets, or stay in place
  kC10d,    ///< LibTorch's c10d::Reducer, the engine behind Python's DDP
};

/// Dtypes of forward, backward and reduction, PyTorch's _MixedPrecision; an absent one leaves what is there. Floating-point
/// parameters, buffers and inputs only.
struct MixedPrecision {
  /// Of inputs and, from forward to the end of backward, of parameters and gradients. The optimizer sees parameters, and
  /// gradients, in their own dtype.
  std::optional<at::ScalarType> param_dtype = {};
  /// Of the sum over the ranks. Absent: param_dtype.
  std::optional<at::ScalarType> reduce_dtype = {};
  /// Buffers become it, once, at construction.
  std::optional<at::ScalarType> buffer_dtype = {};
};

/// Options of the untyped core.
struct ReducerOptions {
  Group process_group = {};
  /// MiB a bucket may hold. Absent: 25, with a first bucket of 1 MiB; given: also the size of the first.
  std::optional<double> bucket_cap_mb = {};
  /// The same bucket by bucket, from the first one to be filled on; the last number counts for all that follow. Not empty: in
  /// place of bucket_cap_mb.
  std::vector<double> bucket_cap_mb_list = {};
  bool find_unused_parameters = false;
  /// The graph is the same in every step: unused parameters and several uses of one are then allowed without the flag above.
  bool static_graph = false;
  /// In PyTorch this saves a copy. Our engine keeps gradients in the buckets anyway, or in place (in_place.h) without the flag;
  /// it selects PyTorch's rounding in that mode (division in place instead of multiplication by 1 / world size). On all ranks.
  bool gradient_as_bucket_view = false;
  /// Buckets none of whose parameters is used are not reduced. Requires the same parameters to be unused on all ranks, in every
  /// step: ranks that differ wait for each other.
  bool skip_all_reduce_unused_params = false;
  /// Copies the gradients of a bucket together when it is full, and divides the bucket (PyTorch's rounding in that mode).
  bool batched_grad_copy = false;
  /// Compare parameter shapes on all ranks at construction.
  bool verify_parameters = true;
  /// One flag per parameter whose gradient will be sparse; empty: none.
  std::vector<bool> expect_sparse_gradient = {};
  /// Names for error messages, in parameter order; empty: indices only.
  std::vector<std::string> parameter_names = {};
  Engine engine = Engine::kCohort;
};

/// Options of the module wrapper.
struct Options {
  /// Empty, or the one device the module lives on; inputs are moved there. Must be empty on CPU.
  std::vector<c10::Device> device_ids = {};
  std::optional<c10::Device> output_device = {};
  Group process_group = {};
  std::optional<double> bucket_cap_mb = {};
  std::vector<double> bucket_cap_mb_list = {};
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool gradient_as_bucket_view = false;
  bool skip_all_reduce_unused_params = false;
  bool batched_grad_copy = false;
  /// Names such as "encoder.weight": each rank keeps its own values and gradients of these.
  std::set<std::string> parameters_and_buffers_to_ignore = {};
  /// Parameters, with their names, whose gradients are averaged all at once instead of in buckets, when the gradient of
  /// param_to_hook_all_reduce is computed in backward: one whose gradient comes after all of theirs. Both or neither.
  std::vector<std::pair<std::string, at::Tensor>> delay_all_reduce_named_params = {};
  at::Tensor param_to_hook_all_reduce = {};
  /// Takes the place of a communication hook. See docs/guide/ddp.md.
  std::optional<MixedPrecision> mixed_precision = {};
  /// Broadcast rank 0's buffers before every forward (PyTorch's forward_sync_buffers).
  bool forward_sync_buffers = true;
  /// Verify shapes and broadcast rank 0's parameters and buffers at construction.
  bool init_sync = true;
  Engine engine = Engine::kCohort;
};

}  // namespace cohort::ddp
