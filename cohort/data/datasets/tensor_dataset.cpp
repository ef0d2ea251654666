#include "cohort/data/datasets/tensor_dataset.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

namespace cohort::data::detail {

int64_t check_rows(const at::Tensor* tensors, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    TORCH_CHECK_VALUE(tensors[i].defined() && tensors[i].dim() > 0,
                      "[cohort] TensorDataset needs tensors with at least one dimension, but tensor ", i,
                      tensors[i].defined() ? " is a scalar" : " is undefined");
    TORCH_CHECK_VALUE(tensors[i].size(0) == tensors[0].size(0), "[cohort] Size mismatch between tensors: tensor 0 has ",
                      tensors[0].size(0), " rows, tensor ", i, " has ", tensors[i].size(0));
  }
  return count == 0 ? 0 : tensors[0].size(0);
}

at::Tensor select_row(const at::Tensor& tensor, int64_t index) { return tensor.select(0, index); }

at::Tensor select_rows(const at::Tensor& tensor, const std::vector<int64_t>& indices) {
  return at::index_select(tensor, 0, at::tensor(indices, at::kLong).to(tensor.device()));
}

}  // namespace cohort::data::detail
