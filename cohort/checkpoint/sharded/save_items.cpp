#include "cohort/checkpoint/sharded/save_items.h"

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include "cohort/checkpoint/file/scalar_type.h"
#include "cohort/checkpoint/sharded/plain_value.h"
#include "cohort/comm/tensors/plain_tensor.h"

namespace cohort::checkpoint::detail {
namespace {

void check_stored(const std::string& key, const at::Tensor& tensor) {
  const char* problem = tensor.layout() != at::kStrided ? "is sparse; call to_dense() first"
                        : tensor.is_meta()              ? "is on the meta device and has no data"
                                                        : nullptr;
  TORCH_CHECK_VALUE(problem == nullptr, "[cohort] tensor \"", key, "\" ", problem);
  const auto dtype = file_dtype(tensor.scalar_type());
  const bool has_place =
      dtype && (*dtype == files::Dtype::kComplex128 || !files::info_of(*dtype).safetensors_name.empty());
  TORCH_CHECK_VALUE(has_place, "[cohort] tensor \"", key, "\" is ", tensor.scalar_type(),
                    ", which the safetensors format does not know");
}

files::SaveItem describe(const std::string& key, const StateValue& value) {
  if (!value.is_tensor()) return {.key = key, .is_tensor = false, .value = to_json(key, value.value)};
  check_stored(key, value.tensor);
  return {.key = key,
          .dtype = file_dtype(value.tensor.scalar_type()).value(),
          .shape = global_shape(value),
          .region = region_of(key, value)};
}

}  // namespace

std::vector<int64_t> global_shape(const StateValue& value) {
  return value.spec ? value.spec->shape() : value.tensor.sizes().vec();
}

files::Region region_of(const std::string& key, const StateValue& value) {
  if (!value.spec) return files::whole_region(value.tensor.sizes().vec());
  const mesh::ShardSpec& spec = *value.spec;
  TORCH_CHECK_VALUE(!spec.is_partial(), "[cohort] tensor \"", key, "\" is ", spec.to_string(),
                    ", a sum that is not complete; redistribute it first");
  const files::Region region = spec.held_ranges();
  const bool is_empty = files::num_elements(region) == 0;
  TORCH_CHECK_VALUE(
      is_empty ? value.tensor.numel() == 0 : value.tensor.sizes() == at::IntArrayRef(files::shape_of(region)),
      "[cohort] tensor \"", key, "\" has shape ", value.tensor.sizes(), ", but this rank's shard of ", spec.to_string(),
      " has ", files::shape_of(region));
  return region;
}

std::vector<files::SaveItem> describe(const ShardedStateDict& state) {
  std::vector<files::SaveItem> items;
  items.reserve(state.size());
  for (const auto& item : state) items.push_back(describe(item.key(), item.value()));
  return items;
}

at::Tensor plain_data(const at::Tensor& tensor) { return comm::as_plain(tensor.detach().cpu()); }

bool is_plain(const at::Tensor& tensor, c10::ScalarType dtype) {
  return tensor.is_cpu() && tensor.scalar_type() == dtype && dtype != at::kBool && comm::is_plain(tensor);
}

}  // namespace cohort::checkpoint::detail
