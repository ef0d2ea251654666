#include "cohort/parallel/ddp/buckets/bucket_memory.h"

#include <ATen/ATen.h>

#include "cohort/comm/collectives/shm_empty.h"

namespace cohort::ddp {
namespace {

// Smaller buckets are reduced in one round through the staging area, which is as fast.
constexpr int64_t kLeastSharedBytes = 16 << 10;

at::TensorOptions options_of(const at::Tensor& parameter, std::optional<at::ScalarType> dtype) {
  return parameter.options().requires_grad(false).dtype(dtype.value_or(parameter.scalar_type()));
}

int64_t num_elements(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& indices) {
  int64_t count = 0;
  for (const size_t index : indices) count += parameters[index].numel();
  return count;
}

}  // namespace

at::Tensor make_bucket_memory(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& indices,
                              const Group& group, std::optional<at::ScalarType> dtype) {
  const auto options = options_of(parameters[indices.front()], dtype);
  const auto count = num_elements(parameters, indices);
  const auto num_bytes = count * static_cast<int64_t>(options.dtype().itemsize());
  // If ordinary tensors are shared, shm_empty is not needed.
  if (num_bytes < kLeastSharedBytes || !options.device().is_cpu() || !comm::has_shared_memory(group) ||
      comm::shares_tensors(group)) {
    return at::empty({count}, options);
  }
  return comm::shm_empty({count}, options, group);
}

at::Tensor alias_of(const at::Tensor& flat, int64_t offset, const at::Tensor& parameter) {
  auto alias = at::empty({0}, flat.options());
  if (parameter.is_non_overlapping_and_dense()) {
    return alias.set_(flat.storage(), offset, parameter.sizes(), parameter.strides());
  }
  return alias.set_(flat.storage(), offset, parameter.sizes(), at::empty(parameter.sizes(), at::kMeta).strides());
}

at::Tensor zeros_of_bucket(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& indices,
                           bool is_sparse, std::optional<at::ScalarType> dtype) {
  const auto& first = parameters[indices.front()];
  if (!is_sparse) return at::zeros({num_elements(parameters, indices)}, options_of(first, dtype));
  // Rows of the parameter, as Embedding makes them.
  auto zeros = at::zeros(first.sizes(), options_of(first, dtype).layout(at::kSparse));
  return zeros.sparse_resize_(first.sizes(), /*sparse_dim=*/1, first.dim() - 1);
}

}  // namespace cohort::ddp
