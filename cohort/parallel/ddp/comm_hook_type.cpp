#include "cohort/parallel/ddp/comm_hook_type.h"

#include <c10/util/Exception.h>

#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"
#include "cohort/parallel/ddp/hooks/compress_hooks.h"
#include "cohort/parallel/ddp/hooks/noop_hook.h"
#include "cohort/parallel/ddp/hooks/power_sgd_hook.h"
#include "cohort/parallel/ddp/hooks/quantization_hooks.h"

namespace cohort::ddp {
namespace {

std::shared_ptr<PowerSGDState> power_sgd_of_rank(int64_t rank, const Group& group) {
  PowerSGDOptions options;
  options.process_group = group;
  options.matrix_approximation_rank = rank;
  return std::make_shared<PowerSGDState>(std::move(options));
}

}  // namespace

void register_ddp_comm_hook(DDPCommHookType comm_hook_type, Reducer& reducer, const Group& state) {
  switch (comm_hook_type) {
    case DDPCommHookType::kAllReduce:
      return reducer.register_comm_hook(state, allreduce_hook);
    case DDPCommHookType::kFp16Compress:
      return reducer.register_comm_hook(state, fp16_compress_hook);
    case DDPCommHookType::kBf16Compress:
      return reducer.register_comm_hook(state, bf16_compress_hook);
    case DDPCommHookType::kQuantizePerTensor:
      return reducer.register_comm_hook(state, quantization_pertensor_hook);
    case DDPCommHookType::kQuantizePerChannel:
      return reducer.register_comm_hook(state, quantization_perchannel_hook);
    case DDPCommHookType::kPowerSGD:
      return reducer.register_comm_hook(power_sgd_of_rank(1, state), power_sgd_hook);
    case DDPCommHookType::kPowerSGDRank2:
      return reducer.register_comm_hook(power_sgd_of_rank(2, state), power_sgd_hook);
    case DDPCommHookType::kBatchedPowerSGD:
      return reducer.register_comm_hook(power_sgd_of_rank(1, state), batched_power_sgd_hook);
    case DDPCommHookType::kBatchedPowerSGDRank2:
      return reducer.register_comm_hook(power_sgd_of_rank(2, state), batched_power_sgd_hook);
    case DDPCommHookType::kNoop:
      return reducer.register_comm_hook(nullptr, noop_hook);
  }
  TORCH_CHECK_VALUE(false, "Unknown built-in DDP comm hook type is provided. No comm hook will be used.");
}

}  // namespace cohort::ddp
