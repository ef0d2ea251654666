/// Module hooks that redistribute tensors on their way into and out of a module.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/export.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/tensor/parallel_style.h"

namespace cohort::parallel {

class COHORT_API InputOutputHooks {
 public:
  /// Throws c10::ValueError if `..._layouts` and `desired_..._layouts` have different lengths.
  InputOutputHooks(DeviceMesh mesh, const InputOutputStyle& style);

  /// Redistribute all of the tensors that go in, or come out. Collective. Throw c10::ValueError for another number of tensors.
  std::vector<at::Tensor> inputs(std::vector<at::Tensor> tensors) const;
  std::vector<at::Tensor> outputs(std::vector<at::Tensor> tensors) const;

 private:
  struct Side {
    const char* name;
    Layouts layouts, desired;
    bool use_local;
  };
  std::vector<at::Tensor> laid_out(std::vector<at::Tensor> tensors, const Side& side) const;

  DeviceMesh mesh_;
  Side inputs_{"input", {}, {}, false}, outputs_{"output", {}, {}, false};
};

}  // namespace cohort::parallel
