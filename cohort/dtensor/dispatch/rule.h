/// A sharding rule: how the ranks of a mesh do one operation together. It speaks of one axis at a time; the placements of several
/// axes are applied one after the other, as everywhere (mesh/shard.h).
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cohort/dtensor/dispatch/call.h"
#include "cohort/dtensor/dispatch/remembered_moves.h"

namespace cohort::dtensor {

/// A way to do it: if the operands lie like this on an axis, running the operation on the parts gives results that lie so.
struct Option {
  Placements operands;
  Placements results;
  /// How many numbers of the results are left as summands. Counts where the operands have to move anyway; else it may turn out
  /// later that nobody needs the sums.
  int64_t num_summands = 0;
};

/// One axis of the mesh.
struct Axis {
  int64_t index;
  int64_t num_ranks;
};

/// What was chosen, for all axes.
struct Plan {
  std::vector<Placements> operands;  ///< one list per operand, a placement per axis
  std::vector<Placements> results;
};

/// Of a whole result. No strides: dense, in the order in which the local result has them.
struct Shape {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides = {};
};

/// Arguments of a matrix product, or of several side by side; the last two dimensions are rows and columns.
struct ProductArguments {
  int64_t first;
  int64_t added;  ///< to the product; -1: nothing is
};

struct Rule {
  /// Adds what is possible on the axis, the best first among equals. That all operands and results are replicated is always
  /// possible and need not be said.
  std::function<void(const Call&, const Axis&, std::vector<Option>&)> options;
  /// The whole results' shapes: asked once the operation has run on the parts, whose results `call` then has. Undefined results
  /// need none.
  std::function<std::vector<Shape>(Call& call, const Plan& plan)> shapes;
  /// Runs the operation on the parts, which are the arguments. Empty: call.run().
  std::function<void(Call& call, const Plan& plan)> run = {};
  /// Arguments that the operation writes without saying so in its schema.
  std::vector<int64_t> written = {};
  /// Whether options and shapes depend on floating-point arguments other than by whether they are 0. Both are asked once for
  /// calls that are alike (known_calls.h), so they must depend on nothing that changes.
  bool reads_numbers = false;
  /// Whether shapes depend on values, so that they are asked each time.
  bool shapes_vary = false;
  /// Of the first result.
  ViewKind view = ViewKind::kNone;
  /// Whether results may share memory with operands although the schema does not say so.
  bool shares_memory = false;
  /// The first operand may be gathered in pieces (product_in_pieces.h).
  std::optional<ProductArguments> product = {};
};

/// The cheapest option on each axis.
/// Throws c10::NotImplementedError if what is written in place would have to lie in other ways.
Plan choose_plan(const Rule& rule, const Call& call);
/// Does it: moves operands, runs, and makes wrappers of the results.
void run_by_rule(const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace cohort::dtensor
