#include "cohort/dtensor/dispatch/remembered_moves.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "cohort/dtensor/wrapper/moves.h"

namespace cohort::dtensor {
namespace {

using PartsPtr = c10::intrusive_ptr<const Parts>;

std::optional<c10::Stream> stream_of(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

at::Tensor moved_from(const at::Tensor& tensor, const Placements& to) {
  const auto& parts = parts_of(tensor);
  return moved(parts.local, parts.mesh, parts.placements, to, tensor.sizes());
}

// Whether nothing was written since. `tensor` has the parts `owner`, or is a view of a tensor that has them.
bool is_as_it_was(const at::Tensor& tensor, const Parts& owner) {
  const auto& known = owner.remembered;
  return known.local.defined() && static_cast<uint32_t>(tensor._version()) == known.version &&
         static_cast<uint32_t>(owner.local._version()) == known.local_version && known.stream == stream_of(owner.local);
}

void remember(const at::Tensor& tensor, const Parts& owner, at::Tensor local, const Placements& placements) {
  owner.remembered = {std::move(local), placements, static_cast<uint32_t>(tensor._version()),
                      static_cast<uint32_t>(owner.local._version()), stream_of(owner.local)};
}

// ---- Reduced values of Partials ----

at::Tensor reduced(const at::Tensor& tensor, const Placements& to) {
  const auto& parts = parts_of(tensor);
  const auto& known = parts.remembered;
  if (is_as_it_was(tensor, parts)) return moved(known.local, parts.mesh, known.placements, to, tensor.sizes());
  remember(tensor, parts, moved_from(tensor, to), to);
  return known.local;
}

// ---- Gathered values of shards ----

bool is_parameter(const at::Tensor& tensor) {
  const auto& viewed = tensor.is_view() ? tensor._base() : tensor;
  return viewed.is_leaf() && viewed.requires_grad();
}

bool is_whole(const Placements& placements) {
  return std::all_of(placements.begin(), placements.end(), [](const auto& one) { return one.is_replicate(); });
}

// Makes `owner` the only tensor whose gathered value this thread keeps, and drops the previous one's.
void keep_only(const PartsPtr& owner) {
  static thread_local c10::weak_intrusive_ptr<const Parts> latest{PartsPtr()};
  const auto before = latest.lock();
  if (before == owner) return;
  latest = owner;
  if (before) before->remembered = {};
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
  const auto& parts = parts_of(tensor);
  if (!parts.is_transposed) return moved_from(tensor, to);
  const std::vector<int64_t> sizes{tensor.size(1), tensor.size(0)};
  return moved(parts.local.t(), parts.mesh, transposed(parts.placements), to, sizes);
}

// Whether the gathered value of a sharded tensor is kept.
bool is_kept(const at::Tensor& tensor, const Placements& to) {
  return !tensor.is_inference() && !parts_of(tensor).local.is_inference() && is_whole(to) && !is_parameter(tensor);
}

PartsPtr owner_of(const at::Tensor& tensor) {
  const auto& parts = parts_of(tensor);
  return parts.viewed ? parts.viewed : shared_parts_of(tensor);
}

void keep(const at::Tensor& tensor, const PartsPtr& owner, at::Tensor local, const Placements& whole) {
  remember(tensor, *owner, std::move(local), whole);
  keep_only(owner);
}

at::Tensor gathered(const at::Tensor& tensor, const Placements& whole) {
  const auto& parts = parts_of(tensor);
  const auto owner = owner_of(tensor);
  if (!is_as_it_was(tensor, *owner)) keep(tensor, owner, gathered_in_order(tensor, whole), whole);
  const auto& known = owner->remembered.local;
  return parts.is_transposed ? known.reshape({tensor.size(1), tensor.size(0)}).t() : known.reshape(tensor.sizes());
}

}  // namespace

at::Tensor remembered_move(const at::Tensor& tensor, const Placements& to) {
  const auto& parts = parts_of(tensor);
  if (parts.layout->is_partial) {
    const bool is_inference = tensor.is_inference() || parts.local.is_inference();
    return is_inference || has_partial(to) || !parts.is_own ? moved_from(tensor, to) : reduced(tensor, to);
  }
  return is_kept(tensor, to) ? gathered(tensor, to) : moved_from(tensor, to);
}

bool is_gathered(const at::Tensor& tensor, const Placements& to) {
  return is_kept(tensor, to) && is_as_it_was(tensor, *owner_of(tensor));
}

void note_gathered(const at::Tensor& tensor, at::Tensor local, const Placements& to) {
  if (is_kept(tensor, to)) keep(tensor, owner_of(tensor), std::move(local), to);
}

void note_view(const at::Tensor& result, const at::Tensor& tensor, ViewKind kind) {
  if (kind == ViewKind::kNone || !is_dtensor(tensor)) return;
  const auto& of = parts_of(tensor);
  if (of.is_held) hold(result);
  // The order of elements in another view of a transposed tensor is not known here.
  const bool is_known = kind == ViewKind::kTransposed ? tensor.dim() == 2 : !of.is_transposed;
  if (kind == ViewKind::kCopy || !is_known || of.layout->is_partial) return;
  const auto& parts = parts_of(result);
  parts.viewed = of.viewed ? of.viewed : shared_parts_of(tensor);
  parts.is_transposed = of.is_transposed != (kind == ViewKind::kTransposed);
}

}  // namespace cohort::dtensor
