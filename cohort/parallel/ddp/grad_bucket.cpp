#include "cohort/parallel/ddp/grad_bucket.h"

namespace cohort::ddp {

std::vector<at::Tensor> GradBucket::gradients() const {
  std::vector<at::Tensor> result;
  if (buffer_.is_sparse()) return result;
  int64_t offset = 0;
  for (const auto& parameter : parameters_) {
    result.push_back(buffer_.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
    offset += parameter.numel();
  }
  return result;
}

}  // namespace cohort::ddp
