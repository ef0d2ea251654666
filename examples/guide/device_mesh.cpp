// The programs of docs/guide/device_mesh.md (tests/tools/guide_test.py compares them), run by two ranks.
#include <ATen/ATen.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/dtensor/api/dtensor.h>
#include <cohort/mesh/device_mesh.h>

#include "guide.h"

namespace guide {
namespace {

void shard(const cohort::DeviceMesh& mesh) {
  auto full = at::arange(10, at::kFloat).view({5, 2});
  const cohort::DTensor weight = cohort::distribute_tensor(full, mesh, {cohort::Replicate(), cohort::Shard(0)});
  weight.to_local().mul_(2);  // three rows on rank 0, two on rank 1
  TORCH_CHECK(at::equal(weight.full_tensor(), full * 2));
}

void describe(const cohort::DeviceMesh& mesh) {
  const cohort::mesh::ShardSpec spec(mesh, {cohort::Replicate(), cohort::Shard(0)}, /*shape=*/{5, 2}, at::kFloat);
  const auto shard = spec.local_shard();  // shape and offset
  TORCH_CHECK(shard.shape[0] == (mesh.local_rank("tp") == 0 ? 3 : 2) && shard.offset[0] == 3 * mesh.local_rank("tp"));
  TORCH_CHECK(spec.num_shards() == 2 && !spec.is_empty());
}

}  // namespace

void run_device_mesh() {
  const cohort::DeviceMesh mesh = cohort::init_device_mesh("cpu", {1, 2}, {"dp", "tp"});
  auto tensor = at::ones({4});
  cohort::all_reduce(tensor, {.group = mesh.group("tp")});  // over this rank's row
  const cohort::DeviceMesh dp = mesh["dp"];                 // this rank's column, with the same group
  TORCH_CHECK(dp.group() == mesh.group("dp") && dp.size() == 1);
  TORCH_CHECK(mesh.local_rank("tp") == cohort::get_rank());
  shard(mesh);
  describe(mesh);
  cohort::destroy_process_group();
}

}  // namespace guide
