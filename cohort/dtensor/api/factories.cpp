#include "cohort/dtensor/api/factories.h"

#include <ATen/ATen.h>

#include <functional>
#include <utility>

#include "cohort/dtensor/api/ready.h"
#include "cohort/dtensor/wrapper/full_tensor.h"
#include "cohort/dtensor/wrapper/redistribution.h"
#include "cohort/dtensor/wrapper/wrapper.h"

namespace cohort::dtensor {
namespace {

using Make = std::function<at::Tensor(c10::IntArrayRef sizes, const at::TensorOptions& options)>;

at::TensorOptions there(const DeviceMesh& mesh, const at::TensorOptions& options) {
  return options.device(device_of(mesh)).requires_grad(false);
}

// `make` returns the local tensor, or the full tensor, of which this rank keeps its shard.
DTensor made(c10::IntArrayRef shape, const DeviceMesh& mesh, const Placements& placements,
             const at::TensorOptions& options, bool makes_full, const Make& make) {
  make_ready();
  const auto on_device = there(mesh, options);
  const mesh::ShardSpec spec(mesh, placements.empty() ? replicated(mesh) : placements, shape.vec(),
                             c10::typeMetaToScalarType(on_device.dtype()));
  at::Tensor local;
  if (!mesh.coordinate()) {
    local = at::empty({0}, on_device);
  } else if (makes_full) {
    local = redistributed(make(shape, on_device), mesh, replicated(mesh), spec.placements(), shape);
  } else {
    auto without_partials = spec.placements();
    for (auto& placement : without_partials) placement = placement.is_partial() ? Placement(Replicate()) : placement;
    local = redistributed(make(spec.local_shape(), on_device), mesh, without_partials, spec.placements(), shape);
  }
  DTensor result(make_dtensor(std::move(local), mesh, spec.placements(), shape));
  result.set_requires_grad(options.requires_grad());
  return result;
}

}  // namespace

DTensor zeros(c10::IntArrayRef shape, const DeviceMesh& mesh, const Placements& placements,
              const at::TensorOptions& options) {
  return full(shape, 0, mesh, placements, options.has_dtype() ? options : options.dtype(c10::get_default_dtype()));
}

DTensor ones(c10::IntArrayRef shape, const DeviceMesh& mesh, const Placements& placements,
             const at::TensorOptions& options) {
  return full(shape, 1, mesh, placements, options.has_dtype() ? options : options.dtype(c10::get_default_dtype()));
}

DTensor empty(c10::IntArrayRef shape, const DeviceMesh& mesh, const Placements& placements,
              const at::TensorOptions& options) {
  return made(shape, mesh, placements, options, false,
              [](c10::IntArrayRef sizes, const at::TensorOptions& on_device) { return at::empty(sizes, on_device); });
}

DTensor full(c10::IntArrayRef shape, const c10::Scalar& value, const DeviceMesh& mesh, const Placements& placements,
             const at::TensorOptions& options) {
  const auto typed =
      options.has_dtype() ? options : options.dtype(at::full({}, value).dtype());  // the dtype that at::full chooses
  return made(shape, mesh, placements, typed, false, [&](c10::IntArrayRef sizes, const at::TensorOptions& on_device) {
    return at::full(sizes, value, on_device);
  });
}

DTensor rand(c10::IntArrayRef shape, const DeviceMesh& mesh, const Placements& placements,
             const at::TensorOptions& options, std::optional<at::Generator> generator) {
  return made(shape, mesh, placements, options, true, [&](c10::IntArrayRef sizes, const at::TensorOptions& on_device) {
    return at::rand(sizes, generator, on_device);
  });
}

DTensor randn(c10::IntArrayRef shape, const DeviceMesh& mesh, const Placements& placements,
              const at::TensorOptions& options, std::optional<at::Generator> generator) {
  return made(shape, mesh, placements, options, true, [&](c10::IntArrayRef sizes, const at::TensorOptions& on_device) {
    return at::randn(sizes, generator, on_device);
  });
}

}  // namespace cohort::dtensor
