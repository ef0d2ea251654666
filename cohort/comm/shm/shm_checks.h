/// Checks of the backend "shm", in addition to tensor_checks.h. All throw c10::ValueError.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace cohort::comm {

/// Checks that all tensors are dense and on the CPU.
void check_dense(const char* name, const std::vector<at::Tensor>& tensors);
/// Checks that there is one tensor, dense and on the CPU.
void check_one(const char* name, const std::vector<at::Tensor>& tensors);
/// Checks the list of gather or scatter: one list of one tensor per rank, each like `like`.
void check_equal_list(const char* name, const std::vector<std::vector<at::Tensor>>& lists, const at::Tensor& like,
                      int own, int world_size);

}  // namespace cohort::comm
