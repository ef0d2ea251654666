// Loaded in a test: a library that replaces the kernels which Cohort replaces, too.
#include <torch/library.h>

TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) {
  for (const char* name : {"batch_norm", "scaled_dot_product_attention", "one_hot"}) {
    library.impl(name, torch::CppFunction::makeFallthrough());
  }
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("uniform_", torch::CppFunction::makeFallthrough());
}
