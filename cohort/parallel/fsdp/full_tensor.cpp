#include "cohort/parallel/fsdp/full_tensor.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "cohort/dtensor/wrapper/full_tensor.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/fsdp/tensors/shard_rows.h"
#include "cohort/parallel/module/purpose.h"
#include "cohort/parallel/module/sharded_tensors.h"

namespace cohort::fsdp {

std::vector<ShardedParameter> sharded_parameters(const torch::nn::Module& model) {
  std::unordered_map<const void*, ShardedParameter> known;
  const auto add = [&](const torch::nn::Module& module) {
    auto* const sharded = dynamic_cast<ShardedModule*>(const_cast<torch::nn::Module*>(&module));
    if (!sharded) return;
    for (const auto& sharding : sharded->shardings()) {
      for (const auto& parameter : sharding->sharded_parameters()) {
        known.emplace(parameter.full.unsafeGetTensorImpl(), parameter);
      }
    }
  };
  add(model);
  for (const auto& module : model.modules(/*include_self=*/false)) add(*module);
  std::vector<ShardedParameter> result;
  for (const auto& entry : model.named_parameters()) {
    const auto found = known.find(entry.value().unsafeGetTensorImpl());
    if (found == known.end()) continue;
    result.push_back(std::move(found->second));
    result.back().name = entry.key();
    known.erase(found);
  }
  return result;
}

at::Tensor full_tensor(const ShardedParameter& parameter) {
  const auto group = parallel::sharding_group(parameter.shard);
  TORCH_CHECK_VALUE(group, "[cohort] Parameter '", parameter.name, "' is no longer sharded: its wrapper was destroyed");
  if (parameter.model_shard) {
    const comm::CalledFor purpose(parallel::kStateExchange);
    const auto full = dtensor::gathered(parameter.shard, *parameter.spec);
    const auto& place = *parameter.spec->mesh().coordinate();
    const bool is_first = std::all_of(place.begin(), place.end(), [](int64_t index) { return index == 0; });
    return is_first ? full : at::Tensor();
  }
  return gather_shards(parameter.shard, rows_of_ranks(parameter.shard, parameter.dim, group), group);
}

}  // namespace cohort::fsdp
