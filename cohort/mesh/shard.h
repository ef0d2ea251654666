/// Shard arithmetic: which part of a tensor a rank has. Pure: no mesh, no communication, no rank of its own.
///
/// A dimension of `size` elements is cut into `num_chunks` as torch.chunk cuts it: chunks of the same size, rounded up,
/// then a short one, then empty ones. Placements are applied from left to right, each to what the ones before it have
/// left.
/// Follows torch/distributed/tensor/placement_types.py and _utils.py. Sizes are numbers of elements along a dimension.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

#include "cohort/base/numbers/index_range.h"
#include "cohort/export.h"
#include "cohort/mesh/placement.h"

namespace cohort {

using base::IndexRange;
/// Of a rank's part of a dimension. None begins where the one before it ends.
using base::IndexRanges;
using base::num_indices;

/// Chunk `index` of `num_chunks`; an empty one begins and ends at `size`.
/// Throws c10::ValueError unless 0 <= index < num_chunks and size >= 0.
COHORT_API IndexRange chunk_range(int64_t size, int64_t num_chunks, int64_t index);
/// What rank `index` of `num_chunks` has of a dimension by a Shard or a StridedShard (of which the dim does not matter
/// here).
/// Throws c10::ValueError as above, and unless the split factor is positive.
COHORT_API IndexRanges shard_ranges(const Placement& placement, int64_t size, int64_t num_chunks, int64_t index);
/// The size of the largest shard, which is what collectives of equal sizes need: that of index 0.
COHORT_API int64_t padded_shard_size(const Placement& placement, int64_t size, int64_t num_chunks);

/// For a tensor of shape `global_shape` on a mesh, one per tensor dimension: what the rank at `coordinate` holds of it.
/// Throws c10::ValueError unless there are as many placements and coordinates as mesh axes, c10::Error for a dim that
/// the tensor does not have. Partial and Replicate leave everything as it is.
COHORT_API std::vector<IndexRanges> held_ranges(c10::IntArrayRef global_shape, c10::IntArrayRef mesh_shape,
                                                c10::IntArrayRef coordinate, const Placements& placements);

struct LocalPart {
  std::vector<int64_t> shape;
  /// Where the part begins in the whole; the size of the whole along dimensions in which the part is empty.
  std::vector<int64_t> offset;
  bool operator==(const LocalPart&) const = default;
};

/// The same as a shape and an offset, as PyTorch gives them. With a StridedShard a part may have gaps, which they do
/// not tell.
COHORT_API LocalPart compute_local_shape_and_global_offset(c10::IntArrayRef global_shape, c10::IntArrayRef mesh_shape,
                                                           c10::IntArrayRef coordinate, const Placements& placements);
/// Strides of a part without gaps whose dimensions lie in memory in the order of the whole's.
COHORT_API std::vector<int64_t> compute_local_stride(c10::IntArrayRef global_stride, c10::IntArrayRef local_shape);

/// `tensor` with `num_padding` zeros after its end along `dim`; the tensor itself for 0.
COHORT_API at::Tensor pad_tensor(const at::Tensor& tensor, int64_t dim, int64_t num_padding);
/// A view of `tensor` without its last `num_padding` elements along `dim`.
COHORT_API at::Tensor unpad_tensor(const at::Tensor& tensor, int64_t dim, int64_t num_padding);
/// What `ranges` name of `tensor` along `dim`, one after the other: a view if it is one range, else a copy.
COHORT_API at::Tensor take_ranges(const at::Tensor& tensor, int64_t dim, const IndexRanges& ranges);

}  // namespace cohort
