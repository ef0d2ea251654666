/// Placements: how an axis of a mesh (device_mesh.h) holds a tensor. A tensor on a mesh has one placement per axis.
///
///     std::vector<Placement> placements = {Replicate(), Shard(0)};   // axis 0: copies; axis 1: shards of the rows
///
/// Values, cheap to copy and to compare. Follows torch/distributed/tensor/placement_types.py.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/export.h"

namespace cohort {

/// Every rank of the axis has the full tensor.
struct Replicate {
  bool operator==(const Replicate&) const = default;
};

/// Each rank has one chunk along tensor dimension `dim`, as torch.chunk makes it: the last chunks may be short or empty.
struct Shard {
  explicit Shard(int64_t dim) : dim(dim) {}
  bool operator==(const Shard&) const = default;
  int64_t dim;
};

/// As Shard, but a later axis shards the dimension first, into `split_factor` pieces; every rank has one chunk of each piece.
/// [StridedShard(0, 2), Shard(0)] is how FSDP over tensor parallelism shards rows.
struct StridedShard {
  explicit StridedShard(int64_t dim, int64_t split_factor = 1) : dim(dim), split_factor(split_factor) {}
  bool operator==(const StridedShard&) const = default;
  int64_t dim;
  int64_t split_factor;
};

/// Each rank has a partial value. The full tensor is their reduction over the axis with "sum", "avg", "min", "max" or
/// "product", or, for integers, "band", "bor" or "bxor".
struct Partial {
  explicit Partial(std::string reduce_op = "sum") : reduce_op(std::move(reduce_op)) {}
  bool operator==(const Partial&) const = default;
  std::string reduce_op;
};

/// Any of the four placements.
class COHORT_API Placement {
 public:
  // Implicit on purpose: {Replicate(), Shard(0)}.
  Placement(Replicate placement) : value_(placement) {}
  Placement(Shard placement) : value_(placement) {}
  Placement(StridedShard placement) : value_(placement) {}
  Placement(Partial placement) : value_(std::move(placement)) {}

  bool operator==(const Placement&) const = default;

  bool is_replicate() const { return std::holds_alternative<Replicate>(value_); }
  /// False for a StridedShard, as in PyTorch.
  bool is_shard() const { return std::holds_alternative<Shard>(value_); }
  bool is_shard(int64_t dim) const { return is_shard() && this->dim() == dim; }
  bool is_strided_shard() const { return std::holds_alternative<StridedShard>(value_); }
  /// Whether this is a Shard or a StridedShard.
  bool is_shard_like() const { return is_shard() || is_strided_shard(); }
  bool is_partial() const { return std::holds_alternative<Partial>(value_); }

  /// Returns the tensor dimension. Throws c10::Error unless is_shard_like().
  int64_t dim() const;
  /// Returns 1 for a Shard. Throws c10::Error unless is_shard_like().
  int64_t split_factor() const;
  /// Throws c10::Error unless is_partial().
  const std::string& reduce_op() const;

  /// Returns Python's repr: "Shard(dim=0)", "Replicate()", "Partial(sum)", "_StridedShard(dim=0, sf=2)".
  std::string to_string() const;
  /// Returns Python's str: "S(0)", "R", "P(sum)", "_S(0, 2)".
  std::string short_text() const;

 private:
  std::variant<Replicate, Shard, StridedShard, Partial> value_;
};

using Placements = std::vector<Placement>;

}  // namespace cohort

namespace cohort::mesh {

/// Counts negative dims from the end of a tensor of `ndim` dimensions. Throws c10::IndexError, with PyTorch's text, for
/// dims that are out of range.
COHORT_API Placements normalize_placements(const Placements& placements, int64_t ndim);

}  // namespace cohort::mesh

namespace cohort {

/// Returns Python's text of a tuple of placements: "(Shard(dim=0), Replicate())".
COHORT_API std::string to_string(const Placements& placements);

inline std::ostream& operator<<(std::ostream& out, const Placement& placement) { return out << placement.to_string(); }

}  // namespace cohort

// Old names, until the next release.
namespace cohort {
using mesh::normalize_placements;
}  // namespace cohort
