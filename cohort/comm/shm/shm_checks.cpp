#include "cohort/comm/shm/shm_checks.h"

#include <c10/util/Exception.h>

#include "cohort/comm/tensors/tensor_checks.h"

namespace cohort::comm {

void check_dense(const char* name, const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.is_cpu(), "[cohort] ", name, " on backend \"shm\" needs CPU tensors, got one on ",
                      tensor.device());
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "[cohort] ", name,
                      " on backend \"shm\" needs dense tensors, got one of layout ", tensor.layout());
  }
}

void check_one(const char* name, const std::vector<at::Tensor>& tensors) {
  check_tensors(name, tensors);
  TORCH_CHECK_VALUE(tensors.size() == 1, "[cohort] ", name, " on backend \"shm\" takes one tensor, got ",
                    tensors.size());
  check_dense(name, tensors);
}

void check_equal_list(const char* name, const std::vector<std::vector<at::Tensor>>& lists, const at::Tensor& like,
                      int own, int world_size) {
  TORCH_CHECK_VALUE(check_list(name, lists, like, own, world_size) == Sizes::kEven, "[cohort] ", name,
                    " needs tensors of ", like.numel(), " elements, got shapes ", shapes_text(lists[0]));
  check_dense(name, lists[0]);
}

}  // namespace cohort::comm
