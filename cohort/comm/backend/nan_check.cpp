#include "cohort/comm/backend/nan_check.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "cohort/base/system/env.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/watch/throw_failure.h"

namespace cohort::comm {
namespace {

at::Tensor where_nan(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const auto values = tensor.is_sparse() ? tensor._values() : tensor;
  const bool is_small = at::isFloat8Type(values.scalar_type());
  return at::isnan(is_small ? values.to(at::kFloat) : values).flatten();
}

}  // namespace

bool nan_check_wanted() { return or_throw_value(base::env_bool("TORCH_NCCL_NAN_CHECK")).value_or(false); }

void check_for_nan(const job::Operation& operation, at::TensorList tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto dtype = tensors[i].scalar_type();
    if (!at::isFloatingType(dtype) && !at::isComplexType(dtype)) continue;
    const auto found = where_nan(tensors[i]);
    const auto count = found.sum().item<int64_t>();
    if (count == 0) continue;
    std::string cause = std::to_string(count) + " of " + std::to_string(found.numel()) + " elements";
    if (tensors.size() > 1) cause += " of tensor " + std::to_string(i);
    cause += std::string(count == 1 ? " is" : " are") + " NaN on this rank, the first at index " +
             std::to_string(found.nonzero()[0].item<int64_t>());
    throw_failure(
        failure_of(operation, {.causes = {cause},
                               .hint = "look for the step that makes NaN, or turn this check off by unsetting "
                                       "TORCH_NCCL_NAN_CHECK"}));
  }
}

}  // namespace cohort::comm
