#include "cohort/parallel/ddp/settings/grad_bucket.h"

#include <ATen/ops/view_as_real.h>

#include <utility>

namespace cohort::ddp {

GradBucket::GradBucket(size_t index, size_t num_buckets, const at::Tensor& buffer, std::vector<at::Tensor> parameters)
    : index_(index),
      num_buckets_(num_buckets),
      buffer_(buffer.is_complex() && !buffer.is_sparse() ? at::view_as_real(buffer).view(-1) : buffer),
      parameters_(std::move(parameters)) {}

std::vector<at::Tensor> GradBucket::gradients() const {
  std::vector<at::Tensor> result;
  if (buffer_.is_sparse()) return result;
  int64_t offset = 0;
  for (const auto& parameter : parameters_) {
    auto sizes = parameter.sizes().vec();
    const bool is_real_view = parameter.is_complex() && !buffer_.is_complex();
    if (is_real_view) sizes.push_back(2);
    const auto count = parameter.numel() * (is_real_view ? 2 : 1);
    result.push_back(buffer_.narrow(0, offset, count).view(sizes));
    offset += count;
  }
  return result;
}

}  // namespace cohort::ddp
