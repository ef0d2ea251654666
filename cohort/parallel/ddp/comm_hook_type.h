/// Ready-made communication hooks by name (torch/distributed/algorithms/ddp_comm_hooks/__init__.py).
#pragma once

#include <cstdint>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/ddp/reducer.h"

namespace cohort::ddp {

enum class DDPCommHookType : uint8_t {
  kAllReduce,
  kFp16Compress,
  kBf16Compress,
  kQuantizePerTensor,
  kQuantizePerChannel,
  kPowerSGD,
  kPowerSGDRank2,
  kBatchedPowerSGD,
  kBatchedPowerSGDRank2,
  kNoop,
};

/// Registers a hook over `state` (if null, the default group). PowerSGD hooks begin to compress after 1000 iterations.
/// Throws as Reducer::register_comm_hook.
COHORT_API void register_ddp_comm_hook(DDPCommHookType comm_hook_type, Reducer& reducer, const Group& state = {});

/// The same for a wrapped module: register_ddp_comm_hook(DDPCommHookType::kFp16Compress, ddp).
template <class Model>
requires requires(Model& model) { model->reducer(); }
void register_ddp_comm_hook(DDPCommHookType comm_hook_type, Model& model, const Group& state = {}) {
  register_ddp_comm_hook(comm_hook_type, model->reducer(), state);
}

}  // namespace cohort::ddp
