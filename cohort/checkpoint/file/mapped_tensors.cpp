#include "cohort/checkpoint/file/mapped_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <span>

namespace cohort::checkpoint {

at::Tensor mapped_tensor(const std::shared_ptr<const files::PrivateMapping>& mapping, uint64_t offset,
                         const std::vector<int64_t>& shape, c10::ScalarType dtype) {
  const auto options = at::TensorOptions().dtype(dtype);
  const std::span<char> bytes = mapping->bytes();
  uint64_t num_bytes = c10::elementSize(dtype);
  if (offset % num_bytes != 0) return {};
  for (const int64_t length : shape) num_bytes *= static_cast<uint64_t>(length);
  if (num_bytes == 0) return at::empty(shape, options);
  if (offset > bytes.size() || num_bytes > bytes.size() - offset) return {};
  return at::from_blob(
      bytes.data() + offset, shape, [mapping](void*) {}, options);
}

}  // namespace cohort::checkpoint
