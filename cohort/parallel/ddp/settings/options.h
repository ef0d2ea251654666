/// Options of DistributedDataParallel and of Reducer. Defaults are PyTorch's (torch/nn/parallel/distributed.py).
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

/// The implementation that buckets and reduces gradients.
enum class Engine {
  kCohort,  ///< our reducer: overlaps with backward, gradients live in the buckets, or stay in place
  kC10d,    ///< LibTorch's c10d::Reducer, the engine behind Python's DDP
};

/// Dtypes of forward, backward and reduction, PyTorch's _MixedPrecision; an absent one changes nothing. Concerns floating-point
/// parameters, buffers and inputs only.
struct MixedPrecision {
  /// Dtype of inputs and, from forward to the end of backward, of parameters and gradients. The optimizer sees parameters and
  /// gradients in their own dtype.
  std::optional<at::ScalarType> param_dtype = {};
  /// Dtype of the sum over the ranks. If absent, param_dtype.
  std::optional<at::ScalarType> reduce_dtype = {};
  /// Dtype to which buffers are converted, once, at construction.
  std::optional<at::ScalarType> buffer_dtype = {};
};

/// Options of Reducer.
struct ReducerOptions {
  Group process_group = {};
  /// Size of a bucket in MiB, also of the first one. If absent, 25, with a first bucket of 1 MiB.
  std::optional<double> bucket_cap_mb = {};
  /// Sizes bucket by bucket, beginning with the first bucket that fills; the last number counts for all that follow. If not
  /// empty, replaces bucket_cap_mb.
  std::vector<double> bucket_cap_mb_list = {};
  bool find_unused_parameters = false;
  /// Says that the graph is the same in every step: unused parameters and several uses of one are then allowed without
  /// find_unused_parameters.
  bool static_graph = false;
  /// In PyTorch this saves a copy. Our engine keeps gradients in the buckets, or in place (in_place.h), without the flag; here it
  /// selects PyTorch's rounding in that mode (division in place instead of multiplication by 1 / world size). Must be the same on
  /// all ranks.
  bool gradient_as_bucket_view = false;
  /// Skips the reduction of buckets of which no parameter is used. Requires that all ranks leave the same parameters unused, in
  /// every step: otherwise ranks wait for each other forever.
  bool skip_all_reduce_unused_params = false;
  /// Copies the gradients of a bucket together when it is full, and divides the bucket (PyTorch's rounding in that mode).
  bool batched_grad_copy = false;
  /// Compares parameter shapes on all ranks at construction.
  bool verify_parameters = true;
  /// One flag per parameter whose gradient will be sparse. If empty, no gradient is.
  std::vector<bool> expect_sparse_gradient = {};
  /// Names for error messages, in parameter order. If empty, messages have indices only.
  std::vector<std::string> parameter_names = {};
  Engine engine = Engine::kCohort;
};

/// Options of DistributedDataParallel.
struct Options {
  /// Empty, or the one device on which the module lives; inputs are moved there. Must be empty on CPU.
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
  /// Parameters, with their names, whose gradients are averaged all at once instead of in buckets, when backward computes the
  /// gradient of param_to_hook_all_reduce. That gradient must come after all of theirs. Set both or neither.
  std::vector<std::pair<std::string, at::Tensor>> delay_all_reduce_named_params = {};
  at::Tensor param_to_hook_all_reduce = {};
  /// Mixed precision; replaces a communication hook. See docs/guide/ddp.md.
  std::optional<MixedPrecision> mixed_precision = {};
  /// Broadcasts rank 0's buffers before every forward (PyTorch's forward_sync_buffers).
  bool forward_sync_buffers = true;
  /// Verifies shapes and broadcasts rank 0's parameters and buffers at construction.
  bool init_sync = true;
  Engine engine = Engine::kCohort;
};

}  // namespace cohort::ddp
