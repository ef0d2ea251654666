#include "cohort/parallel/tensor/input_output_hooks.h"

#include <c10/util/Exception.h>

#include <utility>

#include "cohort/dtensor/api/dtensor.h"

namespace cohort::parallel {
namespace {

void check_layout_lengths(const char* name, const Layouts& layouts, const Layouts& desired) {
  TORCH_CHECK_VALUE(desired.empty() || layouts.size() == desired.size(), name, "_layouts and desired_", name,
                    "_layouts should have same length! They have ", layouts.size(), " and ", desired.size(), ".");
}

at::Tensor laid_out_as(const at::Tensor& tensor, const DeviceMesh& mesh, const Placement& now,
                       const std::optional<Placement>& desired) {
  const DTensor there = is_dtensor(tensor) ? DTensor(tensor) : DTensor::from_local(tensor, mesh, {now});
  if (!desired || there.placements() == mesh::normalize_placements({*desired}, tensor.dim())) return there;
  return there.redistribute({*desired});
}

}  // namespace

InputOutputHooks::InputOutputHooks(DeviceMesh mesh, const InputOutputStyle& style) : mesh_(std::move(mesh)) {
  if (const auto* in = std::get_if<PrepareModuleInput>(&style)) {
    inputs_ = {"input", in->input_layouts, in->desired_input_layouts, in->use_local_output};
  } else if (const auto* out = std::get_if<PrepareModuleOutput>(&style)) {
    outputs_ = {"output", out->output_layouts, out->desired_output_layouts, out->use_local_output};
  } else {
    const auto& both = std::get<PrepareModuleInputOutput>(style);
    inputs_ = {"input", both.input_layouts, both.desired_input_layouts, both.use_local_input};
    outputs_ = {"output", both.output_layouts, both.desired_output_layouts, both.use_local_output};
  }
  for (const auto* side : {&inputs_, &outputs_}) check_layout_lengths(side->name, side->layouts, side->desired);
}

std::vector<at::Tensor> InputOutputHooks::laid_out(std::vector<at::Tensor> tensors, const Side& side) const {
  if (side.layouts.empty()) return tensors;
  TORCH_CHECK_VALUE(tensors.size() == side.layouts.size(), "module ", side.name, "s and ", side.name,
                    "_layouts should have same length! They have ", tensors.size(), " tensors and ",
                    side.layouts.size(), " layouts.");
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!side.layouts[i] || !tensors[i].defined()) continue;
    const auto desired = side.desired.empty() ? std::nullopt : side.desired[i];
    tensors[i] = laid_out_as(tensors[i], mesh_, *side.layouts[i], desired);
    if (side.use_local) tensors[i] = DTensor(tensors[i]).to_local();
  }
  return tensors;
}

std::vector<at::Tensor> InputOutputHooks::inputs(std::vector<at::Tensor> tensors) const {
  return laid_out(std::move(tensors), inputs_);
}

std::vector<at::Tensor> InputOutputHooks::outputs(std::vector<at::Tensor> tensors) const {
  return laid_out(std::move(tensors), outputs_);
}

}  // namespace cohort::parallel
