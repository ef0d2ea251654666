#include "cohort/dtensor/wrapper/moved_view.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "cohort/dtensor/wrapper/moves.h"

namespace cohort::dtensor {
namespace {

// Inference tensors have no version.
uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

void count_write(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

void follow(MovedView& view) {
  if (view.outer) follow(*view.outer);
  const auto version = version_of(view.base);
  if (!view.moved.defined() || (version == view.version && !view.base.is_inference())) return;
  const auto now = moved(view.base, view.layout->mesh, view.layout->placements, view.placements, view.sizes);
  view.moved.copy_(now.reshape(view.moved.sizes()));
  count_write(view.moved);
  view.version = version;
}

void bring_back(MovedView& view) {
  const auto& mesh = view.layout->mesh;
  const auto written = view.moved.reshape(local_sizes(mesh, view.placements, view.sizes));
  view.base.copy_(moved(written, mesh, view.placements, view.layout->placements, view.sizes));
  count_write(view.base);
  view.version = version_of(view.base);
  if (view.outer) bring_back(*view.outer);
}

bool are_known(const MovedView* view) { return !view || (view->moved.defined() && are_known(view->outer.get())); }

}  // namespace

void note_moved_view(const at::Tensor& view, const at::Tensor& tensor, const at::Tensor& moved_base,
                     const Placements& placements, bool keeps_order) {
  const auto &of = parts_of(tensor), &parts = parts_of(view);
  const bool has_moved = !moved_base.is_same(of.local);
  const bool is_alias = parts.local.is_alias_of(moved_base);
  if (!has_moved && is_alias) {
    parts.moved_view = of.moved_view;
    return;
  }
  parts.moved_view = std::make_shared<MovedView>(MovedView{.base = of.local,
                                                           .layout = of.layout,
                                                           .sizes = tensor.sizes().vec(),
                                                           .outer = of.moved_view,
                                                           .moved = is_alias ? moved_base : at::Tensor(),
                                                           .placements = placements,
                                                           .version = version_of(of.local)});
  if (!is_alias && keeps_order) parts.moved_view->moved = parts.local;
  const auto& memory = parts.moved_view->moved;
  if (!memory.defined() || memory.is_inference() || parts.local.is_inference()) return;
  parts.local.unsafeGetTensorImpl()->set_version_counter(memory.unsafeGetTensorImpl()->version_counter());
}

void follow_tensor(const Parts& parts) {
  if (!parts.moved_view) return;
  const at::NoGradGuard no_grad;
  follow(*parts.moved_view);
}

void check_can_be_written(const Parts& parts, const std::string& operation) {
  TORCH_CHECK_NOT_IMPLEMENTED(are_known(parts.moved_view.get()), "[cohort] DTensor: ", operation,
                              " works in place on a view whose operation made a copy of this rank's part, so that the "
                              "tensor itself would not change\n  hint: write to the tensor itself");
}

void bring_to_tensor(const Parts& parts) {
  if (!parts.moved_view) return;
  const at::NoGradGuard no_grad;
  bring_back(*parts.moved_view);
}

}  // namespace cohort::dtensor
