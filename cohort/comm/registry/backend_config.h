/// Which backend serves which device: the text given to init_process_group, taken apart. Follows BackendConfig of
/// torch/distributed/distributed_c10d.py. Pure.
#pragma once

#include <c10/core/DeviceType.h>

#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::comm {

struct DeviceBackend {
  c10::DeviceType device;
  std::string backend;
  bool operator==(const DeviceBackend&) const = default;
};

/// What a backend name alone stands for.
struct BackendCapability {
  std::string name;
  std::vector<c10::DeviceType> devices;
};

/// "gloo" -> both devices it serves; "cpu:gloo,cuda:nccl" -> as it says; "" -> the default of the accelerator present, else
/// Gloo for CPU tensors. Upper case is accepted.
/// Throws c10::ValueError for malformed text, unknown devices or backends, and a backend on a device it does not serve.
COHORT_TEST_API std::vector<DeviceBackend> parse_backend(const std::string& text, bool has_cuda,
                                                         const std::vector<BackendCapability>& known);

/// "cpu:gloo,cuda:nccl"
COHORT_TEST_API std::string to_string(const std::vector<DeviceBackend>& config);

/// The accelerator's default backend: "gloo" for CPU, "nccl" for CUDA. Throws c10::ValueError for other devices.
COHORT_TEST_API std::string default_backend_for(c10::DeviceType device);

}  // namespace cohort::comm
