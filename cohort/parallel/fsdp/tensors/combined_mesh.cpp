#include "cohort/parallel/fsdp/tensors/combined_mesh.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "cohort/base/text/text.h"
#include "cohort/comm/agreement/agreement.h"
#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/module/sharded_tensors.h"

namespace cohort::fsdp {
namespace {

using Numbers = std::vector<int64_t>;

// Returns the numbers of all ranks one after the other.
Numbers gathered_numbers(const Numbers& own, const Group& group) {
  Numbers numbers;
  for (const auto& of_rank : comm::RankExchange(group).all_numbers(own)) {
    numbers.insert(numbers.end(), of_rank.begin(), of_rank.end());
  }
  return numbers;
}

DeviceMesh::AxisNames names_of_data(const MeshGroups& data) {
  if (data.mesh && !data.mesh->axis_names().empty()) return data.mesh->axis_names();
  if (data.replicas) return {"dp_replicate", "dp_shard"};
  return {"dp_shard"};
}

}  // namespace

CombinedMesh combined_mesh(const Group& layer, const MeshGroups& data, const std::string& device_type) {
  const auto of_layer = comm::numbers_in_job(layer);
  const Numbers own(of_layer.begin(), of_layer.end());
  auto numbers = gathered_numbers(gathered_numbers(own, data.shards), data.replicas);
  // Without a job ranks have no numbers of their own.
  if (!is_initialized()) std::iota(numbers.begin(), numbers.end(), 0);
  TORCH_CHECK_NOT_IMPLEMENTED(std::set<int64_t>(numbers.begin(), numbers.end()).size() == numbers.size(),
                              "[cohort] fully_shard cannot tell the ranks of a tensor-parallel layer apart: its group "
                              "was not made by init_process_group or new_group");
  std::vector<Group> groups{data.shards, layer};
  Numbers shape{data.shards->getSize(), layer->getSize()};
  if (data.replicas) {
    groups.insert(groups.begin(), data.replicas);
    shape.insert(shape.begin(), data.replicas->getSize());
  }
  const auto data_names = names_of_data(data);
  const bool is_taken = std::find(data_names.begin(), data_names.end(), "tp") != data_names.end();
  auto names = data_names;
  names.emplace_back(is_taken ? "tensor_parallel" : "tp");
  const auto full = DeviceMesh::from_group(groups, device_type, names, at::tensor(numbers, at::kLong).view(shape));
  return {full.slice(data_names), full[names.back()]};
}

void check_can_be_combined(const NamedParameter& parameter, const MeshGroups& data) {
  const auto spec = is_dtensor(parameter.tensor) ? std::nullopt : parallel::noted_shard_spec(parameter.tensor);
  if (!spec || !is_initialized()) return;
  const auto layer = comm::numbers_in_job(spec->mesh().group());
  for (const auto& group : {data.shards, data.replicas}) {
    if (!group) continue;
    std::vector<int> common;
    const int own = comm::number_in_job(group, group->getRank());
    for (const int rank : comm::numbers_in_job(group)) {
      if (rank != own && std::find(layer.begin(), layer.end(), rank) != layer.end()) common.push_back(rank);
    }
    TORCH_CHECK_VALUE(common.empty(), "[cohort] fully_shard: this rank's shard of '", parameter.name,
                      "', of a tensor-parallel layer, cannot be sharded over ", base::ranks_in_words(common),
                      common.size() == 1 ? ", which has another shard\n" : ", which have other shards\n",
                      "  hint: give fully_shard only the data-parallel axis: .mesh = mesh[\"dp\"], or "
                      "data_parallel_mesh(mesh) of ParallelDims");
  }
}

}  // namespace cohort::fsdp
