/// The table of operations: each is done on tensors in parts, lying in every way, and by one process.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace cohort::test {

using Tensors = std::vector<at::Tensor>;

struct OpCase {
  std::string name;
  /// Whole, of double precision where gradients are wanted; sizes that few numbers of ranks divide.
  Tensors inputs;
  std::function<Tensors(const Tensors& inputs)> run;
  bool is_in_place = false;
};

/// Numbers between -2 and 2 that look random, the same in every call with the same arguments.
at::Tensor numbers(c10::IntArrayRef sizes, int64_t seed = 0);
/// Between 0.5 and 2.5.
at::Tensor positive(c10::IntArrayRef sizes, int64_t seed = 0);
/// Positive, but for `count` of them.
at::Tensor with_zeros(c10::IntArrayRef sizes, int64_t count);
/// Whole ones from 0 to `end`, without it.
at::Tensor indices(c10::IntArrayRef sizes, int64_t end, int64_t seed = 0);

std::vector<OpCase> pointwise_cases();
std::vector<OpCase> rare_pointwise_cases();
std::vector<OpCase> in_place_cases();
std::vector<OpCase> view_cases();
std::vector<OpCase> part_cases();
std::vector<OpCase> reduction_cases();
std::vector<OpCase> selection_cases();
std::vector<OpCase> search_cases();
std::vector<OpCase> index_cases();
std::vector<OpCase> border_cases();
std::vector<OpCase> matrix_cases();
std::vector<OpCase> network_cases();
std::vector<OpCase> loss_cases();
std::vector<OpCase> creation_cases();
std::vector<OpCase> complex_cases();

}  // namespace cohort::test
