#include "cohort/mesh/placement.h"

#include <c10/core/WrapDimMinimal.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace cohort {

int64_t Placement::dim() const {
  if (const auto* shard = std::get_if<Shard>(&value_)) return shard->dim;
  const auto* strided = std::get_if<StridedShard>(&value_);
  TORCH_CHECK(strided, "[cohort] ", to_string(), " has no dim");
  return strided->dim;
}

int64_t Placement::split_factor() const {
  if (is_shard()) return 1;
  const auto* strided = std::get_if<StridedShard>(&value_);
  TORCH_CHECK(strided, "[cohort] ", to_string(), " has no split_factor");
  return strided->split_factor;
}

const std::string& Placement::reduce_op() const {
  const auto* partial = std::get_if<Partial>(&value_);
  TORCH_CHECK(partial, "[cohort] ", to_string(), " has no reduce_op");
  return partial->reduce_op;
}

std::string Placement::to_string() const {
  if (is_replicate()) return "Replicate()";
  if (is_shard()) return c10::str("Shard(dim=", dim(), ")");
  if (is_strided_shard()) return c10::str("_StridedShard(dim=", dim(), ", sf=", split_factor(), ")");
  return c10::str("Partial(", reduce_op(), ")");
}

std::string Placement::short_text() const {
  if (is_replicate()) return "R";
  if (is_shard()) return c10::str("S(", dim(), ")");
  if (is_strided_shard()) return c10::str("_S(", dim(), ", ", split_factor(), ")");
  return c10::str("P(", reduce_op(), ")");
}

}  // namespace cohort

namespace cohort::mesh {

Placements normalize_placements(const Placements& placements, int64_t ndim) {
  Placements result;
  for (const auto& placement : placements) {
    if (!placement.is_shard_like()) {
      result.push_back(placement);
      continue;
    }
    const int64_t dim = c10::maybe_wrap_dim(placement.dim(), ndim, /*wrap_scalar=*/false);
    if (placement.is_shard()) {
      result.emplace_back(Shard(dim));
    } else {
      result.emplace_back(StridedShard(dim, placement.split_factor()));
    }
  }
  return result;
}

}  // namespace cohort::mesh

namespace cohort {

std::string to_string(const Placements& placements) {
  return c10::str("(", c10::Join(", ", placements), placements.size() == 1 ? ",)" : ")");
}

}  // namespace cohort
