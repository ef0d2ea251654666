/// Checks of the backend "shm", beside those of tensor_checks.h. All throw c10::ValueError.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace cohort::comm {

/// All are dense and on the CPU.
void check_dense(const char* name, const std::vector<at::Tensor>& tensors);
/// One tensor, dense and on the CPU.
void check_one(const char* name, const std::vector<at::Tensor>& tensors);
/// Of gather and scatter: one list of one tensor per rank, each like `like`.
void check_equal_list(const char* name, const std::vector<std::vector<at::Tensor>>& lists, const at::Tensor& like,
                      int own, int world_size);

}  // namespace cohort::comm
