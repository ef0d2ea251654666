#include "cohort/comm/shm/shm_checks.h"

#include <c10/util/Exception.h>

#include "cohort/comm/backend/tensor_checks.h"

namespace cohort::comm {

void check_dense(const char* name, const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.is_cpu(), name, " on backend \"shm\" needs CPU tensors, got one on ", tensor.device());
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, name,
                      " on backend \"shm\" needs dense tensors, got one of layout ", tensor.layout());
  }
}

void check_one(const char* name, const std::vector<at::Tensor>& tensors) {
  check_tensors(name, tensors);
  TORCH_CHECK_VALUE(tensors.size() == 1, name, " on backend \"shm\" takes one tensor, got ", tensors.size());
  check_dense(name, tensors);
}

void check_list(const char* name, const std::vector<std::vector<at::Tensor>>& lists, const at::Tensor& like,
                int world_size) {
  TORCH_CHECK_VALUE(lists.size() == 1, name, " needs one list of tensors, got ", lists.size());
  const auto& list = lists[0];
  TORCH_CHECK_VALUE(list.size() == static_cast<size_t>(world_size), name, " needs one tensor per rank, ", world_size,
                    ", got ", list.size());
  for (const auto& tensor : list) {
    check_tensors(name, {like, tensor});
    TORCH_CHECK_VALUE(tensor.numel() == like.numel(), name, " needs tensors of ", like.numel(), " elements, got ",
                      tensor.numel());
  }
  check_dense(name, list);
}

}  // namespace cohort::comm
