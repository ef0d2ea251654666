#include "cohort/dtensor/wrapper/redistribution.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>

#include "cohort/dtensor/wrapper/comm_log.h"
#include "cohort/mesh/axis_collectives.h"
#include "cohort/mesh/purpose.h"
#include "cohort/mesh/shard.h"

namespace cohort::dtensor {
namespace {

// Returns what ranks other than the first get, so that the reduction gives the first rank's value.
at::Tensor neutral_of(const std::string& op, const at::Tensor& tensor) {
  if (op == "sum" || op == "bxor") return at::zeros_like(tensor, at::MemoryFormat::Contiguous);
  if (op == "product") return at::ones_like(tensor, at::MemoryFormat::Contiguous);
  return tensor;  // avg, min, max, band, bor: every rank has the value
}

class Redistribution {
 public:
  Redistribution(at::Tensor local, const DeviceMesh& mesh, const Placements& from, const Placements& to,
                 c10::IntArrayRef sizes)
      : local_(std::move(local)), mesh_(mesh), now_(from), to_(to), sizes_(sizes) {}

  at::Tensor run() {
    const auto num_axes = static_cast<int64_t>(to_.size());
    for (int64_t axis = 0; axis < num_axes; ++axis) reduce_early(axis);
    for (int64_t axis = num_axes; axis-- > 0;) leave(axis);
    for (int64_t axis = 0; axis < num_axes; ++axis) {
      if (!(now_[axis] == to_[axis])) step(axis, to_[axis]);
    }
    return local_;
  }

 private:
  // Reduces before the gathers: shards are smaller.
  void reduce_early(int64_t axis) {
    if (now_[axis].is_partial() && !(now_[axis] == to_[axis]) && !to_[axis].is_shard_like()) step(axis, Replicate());
  }

  // Undoes shards from the last axis on, because a later axis shards what an earlier one leaves; step() makes new ones from the
  // first.
  void leave(int64_t axis) {
    if (!now_[axis].is_shard_like()) return;
    const bool is_final = now_[axis] == to_[axis];
    if (is_final && !changes_before(axis, now_[axis].dim())) return;
    const bool is_all_to_all = !is_final && to_[axis].is_shard() && now_[axis].is_shard() &&
                               to_[axis].dim() != now_[axis].dim() && !changes_before(axis, to_[axis].dim()) &&
                               !is_sharded_after(axis, to_[axis].dim());
    step(axis, is_all_to_all ? to_[axis] : Placement(Replicate()));
  }

  bool changes_before(int64_t axis, int64_t dim) const {
    for (int64_t before = 0; before < axis; ++before) {
      if (now_[before] == to_[before]) continue;
      if (now_[before].is_shard_like() && now_[before].dim() == dim) return true;
      if (to_[before].is_shard_like() && to_[before].dim() == dim) return true;
    }
    return false;
  }

  bool is_sharded_after(int64_t axis, int64_t dim) const {
    return std::any_of(now_.begin() + axis + 1, now_.end(),
                       [&](const auto& placement) { return placement.is_shard_like() && placement.dim() == dim; });
  }

  // Returns what earlier axes leave of a dim.
  int64_t size_before(int64_t axis, int64_t dim) const {
    Placements before(now_.begin(), now_.begin() + axis);
    before.resize(now_.size(), Replicate());
    return local_sizes(mesh_, before, sizes_)[dim];
  }

  void step(int64_t axis, const Placement& to) {
    const auto from = now_[axis];
    now_[axis] = to;
    if (mesh_.size(axis) == 1) return;
    const mesh::AxisOf line{mesh_, axis};
    const auto note = [&](int64_t CommCounts::*kind) {
      note_collective(kind, mesh_, axis, from, to, static_cast<int64_t>(local_.nbytes()));
    };
    if (from.is_replicate()) {
      local_ = to.is_partial() ? partial_of(line, to) : mesh::own_shard(line, to, local_);
    } else if (from.is_partial() && to.is_replicate()) {
      note(&CommCounts::all_reduce);
      local_ = mesh::reduce_axis(line, from.reduce_op(), local_);
    } else if (from.is_partial() && to.is_shard_like()) {
      note(&CommCounts::reduce_scatter);
      local_ = mesh::reduce_scatter_axis(line, from.reduce_op(), to, local_);
    } else if (from.is_shard_like() && to.is_replicate()) {
      note(&CommCounts::all_gather);
      local_ = mesh::gather_axis(line, from, local_, size_before(axis, from.dim()));
    } else {
      note(&CommCounts::all_to_all);
      local_ = mesh::exchange_axis(line, from, to, local_, size_before(axis, from.dim()));
    }
  }

  at::Tensor partial_of(const mesh::AxisOf& line, const Placement& to) const {
    return line.own_index() == 0 ? local_ : neutral_of(to.reduce_op(), local_);
  }

  at::Tensor local_;
  const DeviceMesh& mesh_;
  Placements now_;
  const Placements& to_;
  c10::IntArrayRef sizes_;
};

}  // namespace

at::Tensor redistributed(const at::Tensor& local, const DeviceMesh& mesh, const Placements& from, const Placements& to,
                         c10::IntArrayRef sizes) {
  if (from == to) return local;
  const comm::CalledFor purpose(comm::CalledFor::current_or(mesh::kRedistribution));
  return Redistribution(local, mesh, from, to, sizes).run();
}

double redistribution_cost(const Placement& from, const Placement& to, int64_t num_ranks, double num_bytes) {
  if (from == to || from.is_replicate() || num_ranks == 1) return 0;
  const double others = static_cast<double>(num_ranks - 1) / static_cast<double>(num_ranks);
  const double gather = num_bytes * others + 1;
  if (to.is_replicate() || to.is_partial()) return from.is_partial() ? 2 * gather : gather;
  const bool is_all_to_all = from.is_shard() && to.is_shard();
  return is_all_to_all ? gather / static_cast<double>(num_ranks) : gather;
}

}  // namespace cohort::dtensor
