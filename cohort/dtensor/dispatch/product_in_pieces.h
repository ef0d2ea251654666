/// Matrix products whose first operand has to be gathered along its rows, and nothing else to be communicated, as in a layer
/// that gathers a sequence: the gather comes in pieces, and what has arrived is multiplied while the next is on its way
/// (mesh/gathered_product.h), where ranks have cores to spare for it.
///
/// The rest is as with one gather: it counts as one and is logged as one, and what was gathered is remembered for operations that
/// follow. Where that is at hand, the product is one of the whole.
///
/// Ranks decide alike: by sizes, placements and what is remembered, which are alike on all of them, and by the number of pieces,
/// which a group's rank 0 says at the first such product.
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

/// Of an operation by plan, if that is all that it communicates.
std::optional<RowGather> row_gather(const ProductArguments& product, const Call& call, const Plan& plan);
/// Whether it comes in pieces this time. Collective over the axis the first time that it matters.
bool comes_in_pieces(const Call& call, const RowGather& gather, const Plan& plan);
/// Gathers and runs the operation; all other operands have been moved. Collective over the axis.
void multiply_in_pieces(Call& call, const RowGather& gather, const Plan& plan);

}  // namespace cohort::dtensor
