#include "cohort/comm/gloo/known_dtypes.h"

namespace cohort::comm {

bool gloo_knows(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kChar:
    case at::kByte:
    case at::kBool:
    case at::kInt:
    case at::kLong:
      return true;
    default:
      return false;
  }
}

at::Tensor as_known(const at::Tensor& plain) { return gloo_knows(plain.scalar_type()) ? plain : as_bytes(plain); }

std::vector<at::Tensor> as_known(std::vector<at::Tensor> plain) {
  for (auto& tensor : plain) tensor = as_known(tensor);
  return plain;
}

}  // namespace cohort::comm
