#include <torch/nn/modules/container/sequential.h>

#include "cohort/parallel/activation/checkpoint.h"

namespace cohort::activation {

at::Tensor checkpoint_sequential(const std::vector<TensorFunction>& functions, int64_t segments,
                                 const at::Tensor& input, const CheckpointOptions& options) {
  const auto num_functions = static_cast<int64_t>(functions.size());
  TORCH_CHECK_VALUE(segments >= 1 && segments <= num_functions,
                    "[cohort] checkpoint_sequential needs 1 <= segments <= number of functions, got segments ",
                    segments, " and ", num_functions, " functions");
  const int64_t segment_size = num_functions / segments;
  const auto part = [&](int64_t begin, int64_t end) {
    return [functions = std::vector<TensorFunction>(functions.begin() + begin, functions.begin() + end)](at::Tensor x) {
      for (const auto& function : functions) x = function(x);
      return x;
    };
  };
  const int64_t last_begin = segment_size * (segments - 1);
  at::Tensor x = input;
  for (int64_t begin = 0; begin < last_begin; begin += segment_size) {
    x = checkpoint(options, part(begin, begin + segment_size), x);
  }
  return part(last_begin, num_functions)(x);
}

at::Tensor checkpoint_sequential(torch::nn::SequentialImpl& modules, int64_t segments, const at::Tensor& input,
                                 const CheckpointOptions& options) {
  std::vector<TensorFunction> functions;
  for (torch::nn::AnyModule& module : modules) {
    functions.emplace_back([module](const at::Tensor& x) mutable { return module.forward<at::Tensor>(x); });
  }
  return checkpoint_sequential(functions, segments, input, options);
}

}  // namespace cohort::activation
