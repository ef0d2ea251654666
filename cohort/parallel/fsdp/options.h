/// What fully_shard can be told. Names and defaults as in torch/distributed/fsdp/_fully_shard/_fully_shard.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/mesh/device_mesh.h"

namespace cohort::fsdp {

struct Options {
  /// Of one dimension: the ranks that share the parameters. Absent: those of `process_group`.
  std::optional<DeviceMesh> mesh = {};
  /// The ranks that share the parameters; null: all. They must be able to share memory: has_shared_memory(process_group).
  Group process_group = {};
  /// Parameters that stay whole on every rank, and whose gradients are not reduced.
  std::vector<at::Tensor> ignored_params = {};
};

}  // namespace cohort::fsdp
