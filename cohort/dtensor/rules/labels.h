/// Labels: rules from names of dimensions, as in an einsum: mm is "mk","kn" -> "mn" with "k" summed. They define every way in
/// which an axis can share the work. For each name: operands with the name are sharded there and the others are replicated;
/// a result with the name is sharded, and a result that sums over it is Partial.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/dtensor/dispatch/rule.h"

namespace cohort::dtensor {

/// A letter per dimension; kUnsharded for a dimension that cannot be sharded. Letters up to 'r' number dimensions: letter(0) is
/// 'a'.
inline constexpr char kUnsharded = '.';
inline char letter(int64_t dim) { return static_cast<char>('a' + dim); }

struct ResultLabels {
  std::string dims;
  /// Letters over which the result sums: it is Partial(reduce_op) if they are sharded.
  std::string summed = {};
  /// Letters that the result does not have, but that may be sharded: the result is replicated then.
  std::string untouched = {};
  std::string reduce_op = "sum";
};

/// The operands in which an operation is linear, so that it can run on partial values.
enum class Linear {
  kNo,
  kEach,      ///< in each operand of Labels::linear_in by itself, the others being replicated
  kTogether,  ///< in all operands at once: sums, concatenations
  kCopies,    ///< moves values without computing: works for every kind of Partial
};

struct Labels {
  /// Makes labels by which nothing can be sharded, until operands and results get names.
  explicit Labels(const Call& call);
  /// Names the dimensions of the operand that is this argument, if it is defined.
  void name(const Call& call, int64_t argument, std::string dims);

  std::vector<std::string> operands;
  std::vector<ResultLabels> results;
  Linear linear = Linear::kNo;
  std::vector<int64_t> linear_in = {};  ///< numbers of operands
  /// Letters of which every rank needs at least one element, because the operation refuses tensors without elements there.
  std::string needed = {};
  /// The operand that is added to the result, once: if the result is Partial, so is this operand. -1 means no operand.
  int64_t added = -1;
};

using LabelsOf = std::function<Labels(const Call&)>;

/// Returns "abc" for three dimensions, "b.d" with kUnsharded at flagged ones.
std::string letters(int64_t ndim);
std::string letters(int64_t ndim, const std::vector<bool>& is_unsharded);
/// Returns the letters of a tensor that is broadcast to `sizes`, whose dimensions are named by number.
std::string broadcast_letters(c10::IntArrayRef of, c10::IntArrayRef sizes);

/// Makes a rule from labels. `run`: as Rule::run.
Rule labeled(LabelsOf labels, std::function<void(Call&, const Plan&)> run = {});
void add_options(const Labels& labels, const Call& call, const Axis& axis, std::vector<Option>& options);
/// Returns global shapes: sizes by labels; dimensions that are never sharded have the local results' sizes.
std::vector<Shape> shapes_by(const Labels& labels, Call& call);

}  // namespace cohort::dtensor
