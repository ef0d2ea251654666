#include "cohort/dtensor/wrapper/wrapper.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "cohort/comm/watch/unwrapped_training.h"
#include "cohort/mesh/shard.h"

namespace cohort::dtensor {
namespace {

constexpr const char* kNoData =
    "[cohort] DTensor: this tensor is distributed over the ranks of a mesh and has no data of its own, but something "
    "needs a pointer to its data: printing, saving, a kernel or a library that reads memory\n  hint: give it "
    "DTensor(x).to_local(), this rank's shard, or DTensor(x).full_tensor(), which all ranks must call";

// Makes a storage without data; LibTorch throws kNoData for every access to the data.
c10::Storage make_storage(c10::Device device) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), c10::SymInt(0),
                                                       c10::DataPtr(nullptr, device), nullptr, /*resizable=*/false);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(kNoData);
  return c10::Storage(std::move(storage));
}

// Never destroyed, so that its reference count is always above 1.
const c10::Storage& shared_storage(c10::Device device) {
  static std::mutex mutex;
  static auto* const storages = new std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, c10::Storage>;
  const std::lock_guard lock(mutex);
  auto& storage = (*storages)[{device.type(), device.index()}];
  if (!storage) storage = make_storage(device);
  return storage;
}

const c10::Storage& storage_without_data(c10::Device device) {
  static thread_local const c10::Storage* latest = nullptr;
  if (!latest || latest->device() != device) latest = &shared_storage(device);
  return *latest;
}

// Whether some rank has so little of a dim that its local tensor does not show the memory order of dims.
bool is_order_unknown(const Layout& layout, c10::IntArrayRef sizes) {
  auto smallest = sizes.vec();
  for (size_t axis = 0; axis < layout.placements.size(); ++axis) {
    const auto& placement = layout.placements[axis];
    if (!placement.is_shard_like()) continue;
    const int64_t num_ranks = layout.mesh.size(static_cast<int64_t>(axis));
    auto& size = smallest[placement.dim()];
    size = base::num_indices(mesh::shard_ranges(placement, size, num_ranks, num_ranks - 1));
  }
  for (size_t dim = 0; dim < smallest.size(); ++dim) {
    if (smallest[dim] < 2 && smallest[dim] != sizes[static_cast<int64_t>(dim)]) return true;
  }
  return false;
}

void set_shape(c10::TensorImpl& impl, const at::Tensor& local, const Layout& layout, c10::IntArrayRef sizes,
               c10::IntArrayRef strides) {
  if (strides.size() == sizes.size() && !sizes.empty()) {
    impl.set_sizes_and_strides(sizes, strides);
  } else if (local.dim() != static_cast<int64_t>(sizes.size()) || local.is_contiguous() ||
             is_order_unknown(layout, sizes)) {
    impl.set_sizes_contiguous(sizes);
  } else {
    impl.set_sizes_and_strides(sizes, mesh::compute_local_stride(local.strides(), sizes));
  }
}

}  // namespace

const DTensorData& dtensor_data(const at::Tensor& tensor) {
  const auto* data = static_cast<const DTensorData*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
  TORCH_CHECK(data,
              "[cohort] DTensor: an operation of LibTorch made a tensor of a DTensor's kind without its part"
              "\n  hint: report this as a fault of Cohort's rule for that operation");
  return *data;
}

c10::intrusive_ptr<const DTensorData> shared_dtensor_data(const at::Tensor& tensor) {
  return c10::intrusive_ptr<const DTensorData>::unsafe_reclaim_from_nonowning(&dtensor_data(tensor));
}

at::Tensor local_for_caller(const DTensorData& data) { return data.is_own ? data.local.clone() : data.local.detach(); }

mesh::ShardSpec spec_of(const at::Tensor& tensor) {
  const auto& data = dtensor_data(tensor);
  return {data.mesh, data.placements, tensor.sizes().vec(), tensor.scalar_type(), tensor.strides().vec()};
}

void hold(const at::Tensor& tensor) { dtensor_data(tensor).is_held = true; }

void leave_sums(const at::Tensor& parameter, std::vector<int64_t> axes) {
  dtensor_data(parameter).left_sums = std::move(axes);
}

DTensorData::DTensorData(at::Tensor part, LayoutPtr lies_as)
    : local(std::move(part)), layout(std::move(lies_as)), mesh(layout->mesh), placements(layout->placements) {}

at::Tensor make_dtensor(at::Tensor local, LayoutPtr layout, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  comm::gradients_are_exchanged();  // DTensors do it themselves
  const auto key = c10::computeDispatchKey(local.scalar_type(), local.layout(), local.device());
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage_without_data(local.device())),
                                                   c10::DispatchKeySet(key) | c10::DispatchKeySet(kKey), local.dtype());
  set_shape(*impl, local, *layout, sizes, strides);
  // The wrapper of a lazy view is lazy, too: LibTorch's real() and imag() check it.
  if (local.is_conj()) impl->_set_conj(true);
  if (local.is_neg()) impl->_set_neg(true);
  impl->set_backend_meta(c10::make_intrusive<DTensorData>(std::move(local), std::move(layout)));
  return at::Tensor(std::move(impl));
}

at::Tensor make_dtensor(at::Tensor local, DeviceMesh mesh, Placements placements, c10::IntArrayRef sizes,
                        c10::IntArrayRef strides) {
  return make_dtensor(std::move(local), std::make_shared<const Layout>(std::move(mesh), std::move(placements)), sizes,
                      strides);
}

std::vector<int64_t> local_sizes(const DeviceMesh& mesh, const Placements& placements, c10::IntArrayRef sizes) {
  auto local = sizes.vec();
  const bool is_plain = std::none_of(placements.begin(), placements.end(),
                                     [](const auto& placement) { return placement.is_strided_shard(); });
  if (!is_plain)
    return mesh::compute_local_shape_and_global_offset(sizes, mesh.shape(), *mesh.coordinate(), placements).shape;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].is_shard()) continue;
    auto& size = local[placements[axis].dim()];
    size = mesh::chunk_range(size, mesh.size(static_cast<int64_t>(axis)), (*mesh.coordinate())[axis]).size();
  }
  return local;
}

Placements replicated(const DeviceMesh& mesh) { return Placements(mesh.ndim(), Replicate()); }

}  // namespace cohort::dtensor
