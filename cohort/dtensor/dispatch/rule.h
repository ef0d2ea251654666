/// A sharding rule: how the ranks of a mesh run one operation together. A rule is for one axis at a time; the placements of
/// several axes apply one after the other, as everywhere (mesh/shard.h).
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cohort/dtensor/dispatch/call.h"
#include "cohort/dtensor/dispatch/redistribution_cache.h"

namespace cohort::dtensor {

/// Placements of operands on an axis with which each rank can run the operation on its local tensors, and the results'
/// placements.
struct Option {
  Placements operands;
  Placements results;
  /// The number of elements of Partial results. Counts only if operands must be redistributed anyway; otherwise it may turn out
  /// that nobody needs the reduced values.
  int64_t num_summands = 0;
};

/// One axis of the mesh.
struct Axis {
  int64_t index;
  int64_t num_ranks;
};

/// The chosen placements on all axes.
struct Plan {
  std::vector<Placements> operands;  ///< one list per operand, a placement per axis
  std::vector<Placements> results;
};

/// The global shape of a result. If `strides` is empty, it is dense, with the dimensions in the memory order of the local result.
struct Shape {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides = {};
};

/// Arguments of a matrix product, or of several products side by side; the last two dimensions are rows and columns.
struct ProductArguments {
  int64_t first;
  int64_t added;  ///< the argument that is added to the product, or -1
};

struct Rule {
  /// Adds the possible options on the axis, among equals the best first. The option with everything replicated is always possible
  /// and need not be added.
  std::function<void(const Call&, const Axis&, std::vector<Option>&)> options;
  /// Returns the results' global shapes. Called once the operation has run on the local tensors; `call` then has the results.
  /// Undefined results need no shape.
  std::function<std::vector<Shape>(Call& call, const Plan& plan)> shapes;
  /// Runs the operation on the local tensors. If empty, call.run().
  std::function<void(Call& call, const Plan& plan)> run = {};
  /// Arguments that the operation writes although its schema does not say so.
  std::vector<int64_t> written = {};
  /// Whether options and shapes depend on floating-point arguments, other than on whether they are 0. Both are computed once for
  /// calls with the same key (sharding_cache.h), so they must depend on nothing else that changes.
  bool reads_numbers = false;
  /// Whether shapes depend on values, so that they are computed for each call.
  bool shapes_vary = false;
  /// The kind of view of the first result.
  ViewKind view = ViewKind::kNone;
  /// Whether results may share memory with operands although the schema does not say so.
  bool shares_memory = false;
  /// The product, if its first operand may be gathered in pieces (product_in_pieces.h).
  std::optional<ProductArguments> product = {};
};

/// Chooses the cheapest option on each axis.
/// Throws c10::NotImplementedError if a tensor that is written in place would need other placements.
Plan choose_plan(const Rule& rule, const Call& call);
/// Runs the operation by its rule: redistributes operands, runs, and wraps the results.
void run_by_rule(const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace cohort::dtensor
