#include "cohort/parallel/pipeline/transfer/receive_buffers.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace cohort::pipeline {
namespace {

constexpr size_t kLeastPooledBytes = size_t{64} << 10;

// Whether nobody else holds the tensor or a view of it.
bool is_free(const at::Tensor& tensor) { return tensor.use_count() == 1 && tensor.storage().use_count() == 1; }

}  // namespace

at::Tensor ReceiveBuffers::take(const TensorMeta& meta, const c10::Device& device) {
  const auto fits = [&](const Buffer& buffer) {
    return buffer.tensor.scalar_type() == meta.dtype && buffer.tensor.sizes() == at::IntArrayRef(meta.sizes) &&
           is_free(buffer.tensor);
  };
  const auto found = device.is_cpu() ? std::find_if(buffers_.begin(), buffers_.end(), fits) : buffers_.end();
  if (found != buffers_.end()) {
    found->is_used = true;
    return found->tensor;
  }
  at::Tensor tensor = at::empty(meta.sizes, at::TensorOptions(meta.dtype).device(device));
  if (device.is_cpu() && tensor.nbytes() >= kLeastPooledBytes) buffers_.push_back({tensor});
  return tensor;
}

void ReceiveBuffers::end_step() {
  std::erase_if(buffers_, [](const Buffer& buffer) { return !buffer.is_used; });
  for (Buffer& buffer : buffers_) buffer.is_used = false;
}

}  // namespace cohort::pipeline
