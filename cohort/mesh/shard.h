/// Shard arithmetic: which shard of a tensor a rank has. Pure functions: they know neither a mesh nor this process's rank.
///
/// A dimension of `size` elements has `num_chunks` chunks as torch.chunk makes them: chunks of one size, rounded up, then
/// a shorter one, then empty ones. Placements apply from left to right, each to what the placements before it leave.
/// Follows torch/distributed/tensor/placement_types.py and _utils.py. Sizes are numbers of elements along a dimension.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

#include "cohort/base/numbers/index_range.h"
#include "cohort/export.h"
#include "cohort/mesh/placement.h"

namespace cohort::mesh {

using base::IndexRange;
/// Indices that a rank holds of a dimension. A range never begins where the range before it ends: they would be one.
using base::IndexRanges;
using base::num_indices;

/// Returns chunk `index` of `num_chunks`; an empty chunk begins and ends at `size`.
/// Throws c10::ValueError unless 0 <= index < num_chunks and size >= 0.
COHORT_API IndexRange chunk_range(int64_t size, int64_t num_chunks, int64_t index);
/// Returns the indices of a dimension that rank `index` of `num_chunks` holds by a Shard or a StridedShard. Ignores the
/// placement's dim.
/// Throws c10::ValueError as chunk_range() does, and unless the split factor is positive.
COHORT_API IndexRanges shard_ranges(const Placement& placement, int64_t size, int64_t num_chunks, int64_t index);
/// Returns the size of the largest shard, which is shard 0. Collectives of equal sizes need it.
COHORT_API int64_t padded_shard_size(const Placement& placement, int64_t size, int64_t num_chunks);

/// Returns, for each dimension of a tensor of shape `global_shape`, the indices that the rank at `coordinate` of a mesh holds.
/// Partial and Replicate do not change them.
/// Throws c10::ValueError unless there are as many placements and coordinates as mesh axes, c10::Error for a dim that
/// the tensor does not have.
COHORT_API std::vector<IndexRanges> held_ranges(c10::IntArrayRef global_shape, c10::IntArrayRef mesh_shape,
                                                c10::IntArrayRef coordinate, const Placements& placements);

struct LocalShard {
  std::vector<int64_t> shape;
  /// The begin of the shard in the full tensor; along dimensions in which the shard is empty, the size of the full tensor.
  std::vector<int64_t> offset;
  bool operator==(const LocalShard&) const = default;
};

/// Returns the same as a shape and an offset, as PyTorch does. They do not show the gaps that a shard may have with a
/// StridedShard.
COHORT_API LocalShard compute_local_shape_and_global_offset(c10::IntArrayRef global_shape, c10::IntArrayRef mesh_shape,
                                                            c10::IntArrayRef coordinate, const Placements& placements);
/// Returns the strides of a shard without gaps whose dimensions are in the same memory order as those of the full tensor.
COHORT_API std::vector<int64_t> compute_local_stride(c10::IntArrayRef global_stride, c10::IntArrayRef local_shape);

/// Returns `tensor` with `num_padding` zeros after its end along `dim`; if that is 0, the tensor itself.
COHORT_API at::Tensor pad_tensor(const at::Tensor& tensor, int64_t dim, int64_t num_padding);
/// Returns a view of `tensor` without its last `num_padding` elements along `dim`.
COHORT_API at::Tensor unpad_tensor(const at::Tensor& tensor, int64_t dim, int64_t num_padding);
/// Returns the elements of `tensor` in `ranges` along `dim`, one after the other: a view of a single range, otherwise a copy.
COHORT_API at::Tensor take_ranges(const at::Tensor& tensor, int64_t dim, const IndexRanges& ranges);

}  // namespace cohort::mesh

// Old names, until the next release.
namespace cohort {
using mesh::chunk_range;
using mesh::held_ranges;
using mesh::IndexRange;
using mesh::IndexRanges;
using mesh::num_indices;
using mesh::padded_shard_size;
using mesh::shard_ranges;
using LocalPart [[deprecated("use cohort::mesh::LocalShard")]] = mesh::LocalShard;
using mesh::compute_local_shape_and_global_offset;
using mesh::compute_local_stride;
using mesh::pad_tensor;
using mesh::take_ranges;
using mesh::unpad_tensor;
}  // namespace cohort
