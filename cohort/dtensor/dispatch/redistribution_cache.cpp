#include "cohort/dtensor/dispatch/redistribution_cache.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "cohort/dtensor/wrapper/redistribution.h"

namespace cohort::dtensor {
namespace {

using DTensorDataPtr = c10::intrusive_ptr<const DTensorData>;

std::optional<c10::Stream> stream_of(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

at::Tensor redistributed_from(const at::Tensor& tensor, const Placements& to) {
  const auto& data = dtensor_data(tensor);
  return redistributed(data.local, data.mesh, data.placements, to, tensor.sizes());
}

// Whether nothing was written since. `tensor` has the data `owner`, or is a view of a tensor that has it.
bool is_unchanged(const at::Tensor& tensor, const DTensorData& owner) {
  const auto& cached = owner.cached;
  return cached.local.defined() && static_cast<uint32_t>(tensor._version()) == cached.version &&
         static_cast<uint32_t>(owner.local._version()) == cached.local_version &&
         cached.stream == stream_of(owner.local);
}

void store(const at::Tensor& tensor, const DTensorData& owner, at::Tensor local, const Placements& placements) {
  owner.cached = {std::move(local), placements, static_cast<uint32_t>(tensor._version()),
                  static_cast<uint32_t>(owner.local._version()), stream_of(owner.local)};
}

// ---- Reduced values of Partials ----

at::Tensor reduced(const at::Tensor& tensor, const Placements& to) {
  const auto& data = dtensor_data(tensor);
  const auto& cached = data.cached;
  if (is_unchanged(tensor, data)) return redistributed(cached.local, data.mesh, cached.placements, to, tensor.sizes());
  store(tensor, data, redistributed_from(tensor, to), to);
  return cached.local;
}

// ---- Gathered values of shards ----

bool is_parameter(const at::Tensor& tensor) {
  const auto& viewed = tensor.is_view() ? tensor._base() : tensor;
  return viewed.is_leaf() && viewed.requires_grad();
}

bool is_full(const Placements& placements) {
  return std::all_of(placements.begin(), placements.end(), [](const auto& one) { return one.is_replicate(); });
}

// Makes `owner` the only tensor whose gathered value this thread keeps, and drops the previous one's.
void keep_only(const DTensorDataPtr& owner) {
  static thread_local c10::weak_intrusive_ptr<const DTensorData> latest{DTensorDataPtr()};
  const auto before = latest.lock();
  if (before == owner) return;
  latest = owner;
  if (before) before->cached = {};
}

Placements transposed(Placements placements) {
  for (auto& one : placements) {
    if (one.is_shard()) {
      one = Shard(1 - one.dim());
    } else if (one.is_strided_shard()) {
      one = StridedShard(1 - one.dim(), one.split_factor());
    }
  }
  return placements;
}

// Gathers all elements, in the order of the base if the tensor is a view.
at::Tensor gathered_in_order(const at::Tensor& tensor, const Placements& to) {
  const auto& data = dtensor_data(tensor);
  if (!data.is_transposed) return redistributed_from(tensor, to);
  const std::vector<int64_t> sizes{tensor.size(1), tensor.size(0)};
  return redistributed(data.local.t(), data.mesh, transposed(data.placements), to, sizes);
}

// Whether the gathered value of a sharded tensor is kept.
bool is_kept(const at::Tensor& tensor, const Placements& to) {
  return !tensor.is_inference() && !dtensor_data(tensor).local.is_inference() && is_full(to) && !is_parameter(tensor);
}

DTensorDataPtr owner_of(const at::Tensor& tensor) {
  const auto& data = dtensor_data(tensor);
  return data.viewed ? data.viewed : shared_dtensor_data(tensor);
}

void keep(const at::Tensor& tensor, const DTensorDataPtr& owner, at::Tensor local, const Placements& full) {
  store(tensor, *owner, std::move(local), full);
  keep_only(owner);
}

at::Tensor gathered(const at::Tensor& tensor, const Placements& full) {
  const auto& data = dtensor_data(tensor);
  const auto owner = owner_of(tensor);
  if (!is_unchanged(tensor, *owner)) keep(tensor, owner, gathered_in_order(tensor, full), full);
  const auto& cached = owner->cached.local;
  return data.is_transposed ? cached.reshape({tensor.size(1), tensor.size(0)}).t() : cached.reshape(tensor.sizes());
}

}  // namespace

at::Tensor cached_redistribution(const at::Tensor& tensor, const Placements& to) {
  const auto& data = dtensor_data(tensor);
  if (data.layout->is_partial) {
    const bool is_inference = tensor.is_inference() || data.local.is_inference();
    return is_inference || has_partial(to) || !data.is_own ? redistributed_from(tensor, to) : reduced(tensor, to);
  }
  return is_kept(tensor, to) ? gathered(tensor, to) : redistributed_from(tensor, to);
}

bool is_gathered(const at::Tensor& tensor, const Placements& to) {
  return is_kept(tensor, to) && is_unchanged(tensor, *owner_of(tensor));
}

void note_gathered(const at::Tensor& tensor, at::Tensor local, const Placements& to) {
  if (is_kept(tensor, to)) keep(tensor, owner_of(tensor), std::move(local), to);
}

void note_view(const at::Tensor& result, const at::Tensor& tensor, ViewKind kind) {
  if (kind == ViewKind::kNone || !is_dtensor(tensor)) return;
  const auto& of = dtensor_data(tensor);
  if (of.is_held) hold(result);
  // The order of elements in another view of a transposed tensor is not known here.
  const bool is_known = kind == ViewKind::kTransposed ? tensor.dim() == 2 : !of.is_transposed;
  if (kind == ViewKind::kCopy || !is_known || of.layout->is_partial) return;
  const auto& data = dtensor_data(result);
  data.viewed = of.viewed ? of.viewed : shared_dtensor_data(tensor);
  data.is_transposed = of.is_transposed != (kind == ViewKind::kTransposed);
}

}  // namespace cohort::dtensor
