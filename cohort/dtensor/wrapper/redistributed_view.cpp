#include "cohort/dtensor/wrapper/redistributed_view.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "cohort/dtensor/wrapper/redistribution.h"

namespace cohort::dtensor {
namespace {

// Inference tensors have no version.
uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

void count_write(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

void follow(RedistributedView& view) {
  if (view.outer) follow(*view.outer);
  const auto version = version_of(view.base);
  if (!view.redistributed.defined() || (version == view.version && !view.base.is_inference())) return;
  const auto now = redistributed(view.base, view.layout->mesh, view.layout->placements, view.placements, view.sizes);
  view.redistributed.copy_(now.reshape(view.redistributed.sizes()));
  count_write(view.redistributed);
  view.version = version;
}

void bring_back(RedistributedView& view) {
  const auto& mesh = view.layout->mesh;
  const auto written = view.redistributed.reshape(local_sizes(mesh, view.placements, view.sizes));
  view.base.copy_(redistributed(written, mesh, view.placements, view.layout->placements, view.sizes));
  count_write(view.base);
  view.version = version_of(view.base);
  if (view.outer) bring_back(*view.outer);
}

bool are_known(const RedistributedView* view) {
  return !view || (view->redistributed.defined() && are_known(view->outer.get()));
}

}  // namespace

void note_redistributed_view(const at::Tensor& view, const at::Tensor& tensor, const at::Tensor& redistributed_base,
                             const Placements& placements, bool keeps_order) {
  const auto &of = dtensor_data(tensor), &data = dtensor_data(view);
  const bool is_redistributed = !redistributed_base.is_same(of.local);
  const bool is_alias = data.local.is_alias_of(redistributed_base);
  if (!is_redistributed && is_alias) {
    data.redistributed_view = of.redistributed_view;
    return;
  }
  data.redistributed_view = std::make_shared<RedistributedView>(
      RedistributedView{.base = of.local,
                        .layout = of.layout,
                        .sizes = tensor.sizes().vec(),
                        .outer = of.redistributed_view,
                        .redistributed = is_alias ? redistributed_base : at::Tensor(),
                        .placements = placements,
                        .version = version_of(of.local)});
  if (!is_alias && keeps_order) data.redistributed_view->redistributed = data.local;
  const auto& memory = data.redistributed_view->redistributed;
  if (!memory.defined() || memory.is_inference() || data.local.is_inference()) return;
  data.local.unsafeGetTensorImpl()->set_version_counter(memory.unsafeGetTensorImpl()->version_counter());
}

void follow_tensor(const DTensorData& data) {
  if (!data.redistributed_view) return;
  const at::NoGradGuard no_grad;
  follow(*data.redistributed_view);
}

void check_can_be_written(const DTensorData& data, const std::string& operation) {
  TORCH_CHECK_NOT_IMPLEMENTED(are_known(data.redistributed_view.get()), "[cohort] DTensor: ", operation,
                              " works in place on a view whose operation made a copy of this rank's shard, so that the "
                              "tensor itself would not change\n  hint: write to the tensor itself");
}

void bring_to_tensor(const DTensorData& data) {
  if (!data.redistributed_view) return;
  const at::NoGradGuard no_grad;
  bring_back(*data.redistributed_view);
}

}  // namespace cohort::dtensor
