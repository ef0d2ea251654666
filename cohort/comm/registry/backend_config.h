/// The backend of each device, parsed from the text given to init_process_group. Follows BackendConfig of
/// torch/distributed/distributed_c10d.py. Also the capabilities of backends, so that other code need not know their names. Pure.
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

/// Capabilities of a backend. The defaults apply to backends that the program registers.
struct BackendCapability {
  std::string name;
  /// The devices that the backend serves if only its name is given.
  std::vector<c10::DeviceType> devices;
  /// The devices whose tensors it gets if no backend is named.
  std::vector<c10::DeviceType> default_for = {};
  /// The time that operations may wait if the user gives no timeout. If a group has several backends, the longest counts.
  std::chrono::milliseconds default_timeout = std::chrono::minutes(30);
  /// Its ranks wait for each other at the start, with explanations (membership check, membership_check.h).
  bool calls_roll = false;
  /// Its ranks may connect over the network as Gloo's do, so they must be able to reach each other's addresses.
  bool listens = false;
  /// Groups of other libraries can use it, by this name (join_backend.h).
  bool is_joinable = false;
  /// Its ranks share memory, and must be able to: shm_empty works on its groups.
  bool shares_memory = false;
  /// Synchronous operations run in the calling thread and wake no other thread.
  bool runs_in_caller = false;
  /// monitored_barrier works on its groups.
  bool has_monitored_barrier = false;
  /// Two ranks cannot use one GPU. In a group of several backends it is c10d's default.
  bool owns_gpu = false;
  /// Its groups with GPUs can be split only if InitOptions::device_id names this rank's GPU.
  bool splits_bound_only = true;
  /// PyTorch's compositions of nn::functional on it, which must be alike on all ranks of a group: all_to_all from scatters, and
  /// the gradient of all_gather from a reduce_scatter.
  bool scatters_all_to_all = false;
  bool reduces_gathered = false;

  bool serves(c10::DeviceType device) const;
  bool is_default_for(c10::DeviceType device) const;
};

/// "gloo": both devices that it serves; "cpu:gloo,cuda:nccl": as given; "": the default of the `accelerator` present, or
/// Gloo for CPU tensors. Accepts upper case.
/// Throws c10::ValueError for malformed text, unknown devices or backends, and a backend on a device it does not serve.
COHORT_TEST_API std::vector<DeviceBackend> parse_backend(const std::string& text,
                                                         std::optional<c10::DeviceType> accelerator,
                                                         const std::vector<BackendCapability>& known);

/// Returns a text such as "cpu:gloo,cuda:nccl".
COHORT_TEST_API std::string to_string(const std::vector<DeviceBackend>& config);

/// Returns "gloo" for CPU, "nccl" for CUDA. Throws c10::ValueError for a device that is not the default of a backend.
COHORT_TEST_API std::string default_backend_for(c10::DeviceType device, const std::vector<BackendCapability>& known);

}  // namespace cohort::comm
