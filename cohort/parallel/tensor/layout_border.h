/// What stands at a module's border and changes how tensors lie on their way in and out.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/export.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/tensor/parallel_style.h"

namespace cohort::parallel {

class COHORT_API LayoutBorder {
 public:
  /// Throws c10::ValueError where `..._layouts` and `desired_..._layouts` have not the same length.
  LayoutBorder(DeviceMesh mesh, const BorderStyle& style);

  /// All of the tensors as they go in, or come out. Collective. Throws c10::ValueError for another number of tensors.
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
