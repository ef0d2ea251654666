/// Matrix products that gather the rows of their first operand and communicate nothing else, as in a layer that gathers a
/// sequence. If the ranks have cores to spare, the gather runs in pieces, and one piece is multiplied while the next is on its
/// way (mesh/gathered_product.h).
///
/// Otherwise it is like one gather: it counts and is logged as one, and the gathered tensor is cached for later operations.
/// If it is already in the cache, the product uses the full tensor.
///
/// All ranks decide alike: by sizes, placements and cached tensors, which are equal on all of them, and by the number of pieces,
/// which a group's rank 0 tells the others at the first such product.
#pragma once

#include <cstdint>
#include <optional>

#include "cohort/dtensor/dispatch/rule.h"

namespace cohort::dtensor {

/// The gather of a product's first operand over one axis.
struct RowGather {
  int64_t operand;
  int64_t axis;
};

/// Returns the gather of a planned operation, if that is all that it communicates.
std::optional<RowGather> row_gather(const ProductArguments& product, const Call& call, const Plan& plan);
/// Whether this call's gather runs in pieces. Collective over the axis the first time that this is asked.
bool comes_in_pieces(const Call& call, const RowGather& gather, const Plan& plan);
/// Gathers and runs the operation. Requires: all other operands have been redistributed. Collective over the axis.
void multiply_in_pieces(Call& call, const RowGather& gather, const Plan& plan);

}  // namespace cohort::dtensor
