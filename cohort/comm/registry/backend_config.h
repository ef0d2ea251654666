/// Which backend serves which device: the text given to init_process_group, taken apart. Follows BackendConfig of
/// torch/distributed/distributed_c10d.py. And what a backend can do, so that nobody asks for its name. Pure.
#pragma once

#include <c10/core/DeviceType.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::comm {

struct DeviceBackend {
  c10::DeviceType device;
  std::string backend;
  bool operator==(const DeviceBackend&) const = default;
};

/// What a backend name stands for. The defaults are what is known of a backend that the program registers.
struct BackendCapability {
  std::string name;
  /// Those that the name alone stands for.
  std::vector<c10::DeviceType> devices;
  /// Those whose tensors it gets where nobody names a backend.
  std::vector<c10::DeviceType> default_for = {};
  /// How long operations may wait where the user names no time-out. Of several backends in a group the longest counts.
  std::chrono::milliseconds default_timeout = std::chrono::minutes(30);
  /// Its ranks wait for each other at the start, with explanations (roll_call.h).
  bool calls_roll = false;
  /// Its ranks may connect over the network as Gloo does, so their addresses must be able to reach each other.
  bool listens = false;
  /// Groups that somebody else builds can have it, by this name (join_backend.h).
  bool is_joinable = false;
  /// All its ranks share memory, and must be able to: shm_empty serves its groups.
  bool shares_memory = false;
  /// Synchronous operations run in the calling thread and wake no other.
  bool runs_in_caller = false;
  /// monitored_barrier serves its groups.
  bool has_monitored_barrier = false;
  /// Two ranks cannot use one GPU. It is c10d's default in a group of several backends.
  bool owns_gpu = false;
  /// Its groups with GPUs are split only where InitOptions::device_id names this rank's.
  bool splits_bound_only = true;
  /// How PyTorch composes nn::functional on it, which all ranks of a group must do alike: all_to_all of scatters, and the
  /// gradient of all_gather of a reduce_scatter.
  bool scatters_all_to_all = false;
  bool reduces_gathered = false;

  bool serves(c10::DeviceType device) const;
  bool is_default_for(c10::DeviceType device) const;
};

/// "gloo" -> both devices it serves; "cpu:gloo,cuda:nccl" -> as it says; "" -> the default of the `accelerator` present, else
/// Gloo for CPU tensors. Upper case is accepted.
/// Throws c10::ValueError for malformed text, unknown devices or backends, and a backend on a device it does not serve.
COHORT_TEST_API std::vector<DeviceBackend> parse_backend(const std::string& text,
                                                         std::optional<c10::DeviceType> accelerator,
                                                         const std::vector<BackendCapability>& known);

/// "cpu:gloo,cuda:nccl"
COHORT_TEST_API std::string to_string(const std::vector<DeviceBackend>& config);

/// "gloo" for CPU, "nccl" for CUDA. Throws c10::ValueError for a device that is the default of no backend.
COHORT_TEST_API std::string default_backend_for(c10::DeviceType device, const std::vector<BackendCapability>& known);

}  // namespace cohort::comm
