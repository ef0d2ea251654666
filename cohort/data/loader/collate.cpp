#include "cohort/data/loader/collate.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

namespace cohort::data {

at::Tensor collate(const std::vector<at::Tensor>& examples) {
  TORCH_CHECK(examples.front().layout() == at::kStrided,
              "Batches of sparse tensors are not currently supported by the default collate_fn; please provide a "
              "custom collate_fn to handle them appropriately.");
  return at::stack(examples);
}

namespace detail {

at::Tensor collate_integers(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

at::Tensor collate_floats(const std::vector<double>& values, at::ScalarType type) { return at::tensor(values, type); }

at::Tensor collate_bools(const std::vector<bool>& values) {
  at::Tensor result = at::empty({static_cast<int64_t>(values.size())}, at::kBool);
  bool* data = result.mutable_data_ptr<bool>();
  for (const bool value : values) *data++ = value;
  return result;
}

void check_equal_size(bool is_equal) { TORCH_CHECK(is_equal, "each element in list of batch should be of equal size"); }

}  // namespace detail
}  // namespace cohort::data
