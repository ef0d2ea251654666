#include "cohort/parallel/tensor/shards.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <optional>

#include "cohort/dtensor/wrapper/full_tensor.h"
#include "cohort/mesh/shard_spec.h"
#include "cohort/parallel/module/sharded_tensors.h"
#include "cohort/parallel/tensor/purpose.h"

namespace cohort::parallel {
namespace {

// Absent if the rank is alone.
std::optional<mesh::ShardSpec> spec_of(const at::Tensor& tensor, const Placement& placement,
                                       const std::vector<int64_t>& sizes, const GroupPlace& place) {
  if (!place.group) return std::nullopt;
  const auto type = c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true);
  return mesh::ShardSpec(DeviceMesh::from_group(place.group, type, {"tp"}), {placement}, sizes, tensor.scalar_type());
}

}  // namespace

at::Tensor scatter_parameter(const at::Tensor& full, const Placement& placement, const GroupPlace& place) {
  const auto spec = spec_of(full, placement, full.sizes().vec(), place);
  if (!spec) return full;
  const comm::CalledFor purpose(parallel::kTensorParallel);
  auto own = dtensor::scattered(full, *spec);
  if (placement.is_shard()) note_shard(own, *spec);
  return own;
}

at::Tensor gather_parameter(const at::Tensor& own, const Placement& placement, const std::vector<int64_t>& sizes,
                            const GroupPlace& place) {
  const auto spec = spec_of(own, placement, sizes, place);
  const comm::CalledFor purpose(parallel::kTensorParallel);
  return spec ? dtensor::gathered(own, *spec) : own.detach().clone(at::MemoryFormat::Contiguous);
}

void load_shard(const at::Tensor& own, const at::Tensor& full, const Placement& placement,
                const std::vector<int64_t>& sizes, const GroupPlace& place, const char* name) {
  TORCH_CHECK_VALUE(full.sizes() == c10::IntArrayRef(sizes), "[cohort] the full ", name, " has shape ",
                    c10::IntArrayRef(sizes), ", but ", full.sizes(), " was given");
  TORCH_CHECK_VALUE(!is_of_fully_shard(own), "[cohort] load_full: fully_shard has sharded the ", name,
                    "\n  hint: load before fully_shard, or afterwards with set_model_state_dict() and full_state_dict, "
                    "or with write() of the wrapper");
  const at::NoGradGuard no_grad;
  const auto spec = spec_of(full, placement, sizes, place);
  own.copy_(spec ? dtensor::scattered(full, *spec, /*src_rank=*/std::nullopt) : full);
}

}  // namespace cohort::parallel
