/// Options of DistributedDataParallel and of its untyped core. Defaults are PyTorch's (torch/nn/parallel/distributed.py).
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/comm/group/process_group.h"

namespace cohort::ddp {

/// Who buckets and reduces gradients.
enum class Engine {
  kAuto,    ///< kCohort on CPU, kC10d on other devices
  kCohort,  ///< our reducer: overlaps with backward, gradients live in the buckets
  kC10d,    ///< LibTorch's c10d::Reducer, the engine behind Python's DDP
  kInline,  ///< all-reduces each bucket after backward; short, slow, the readable reference
};

/// Options of the untyped core.
struct ReducerOptions {
  Group process_group = {};
  /// MiB a bucket may hold. Absent: 25, with a first bucket of 1 MiB; given: also the size of the first.
  std::optional<double> bucket_cap_mb = {};
  bool find_unused_parameters = false;
  /// The graph is the same in every step: unused parameters and several uses of one are then allowed without the flag above.
  bool static_graph = false;
  /// In PyTorch this saves a copy. Our engine always keeps gradients in the buckets; the flag then only selects PyTorch's
  /// rounding in that mode (division in place instead of multiplication by 1 / world size).
  bool gradient_as_bucket_view = false;
  /// Compare parameter shapes on all ranks at construction.
  bool verify_parameters = true;
  /// One flag per parameter whose gradient will be sparse; empty: none.
  std::vector<bool> expect_sparse_gradient = {};
  /// Names for error messages, in parameter order; empty: indices only.
  std::vector<std::string> parameter_names = {};
  Engine engine = Engine::kAuto;
};

/// Options of the module wrapper.
struct Options {
  /// Empty, or the one device the module lives on; inputs are moved there. Must be empty on CPU.
  std::vector<c10::Device> device_ids = {};
  std::optional<c10::Device> output_device = {};
  Group process_group = {};
  std::optional<double> bucket_cap_mb = {};
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool gradient_as_bucket_view = false;
  /// Broadcast rank 0's buffers before every forward (PyTorch's forward_sync_buffers).
  bool forward_sync_buffers = true;
  /// Verify shapes and broadcast rank 0's parameters and buffers at construction.
  bool init_sync = true;
  Engine engine = Engine::kAuto;
};

}  // namespace cohort::ddp
