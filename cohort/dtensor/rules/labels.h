/// Rules by names of dimensions, as in an einsum: mm is "mk","kn" -> "mn" with "k" summed. From them follows every way in which
/// an
/// axis can share the work: operands that have a name are cut there, the others are whole; a result that has it is cut, and one
/// that sums over it is Partial.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/dtensor/dispatch/rule.h"

namespace cohort::dtensor {

/// A letter per dimension; kWhole where a dimension cannot be cut. The letters up to 'r' number dimensions: letter(0) is 'a'.
inline constexpr char kWhole = '.';
inline char letter(int64_t dim) { return static_cast<char>('a' + dim); }

struct ResultLabels {
  std::string dims;
  /// Letters over which it sums: it is Partial(reduce_op) where they are cut.
  std::string summed = {};
  /// Letters that may be cut although it does not have them: it is whole then all the same.
  std::string untouched = {};
  std::string reduce_op = "sum";
};

/// In which operands an operation is linear, so that it can be done on the summands of a Partial.
enum class Linear {
  kNo,
  kEach,      ///< in each of Labels::linear_in alone, the others being whole
  kTogether,  ///< in all operands at once: sums, concatenations
  kCopies,    ///< it moves values and calculates nothing: any Partial will do
};

struct Labels {
  /// Nothing can be cut, until operands and results are named.
  explicit Labels(const Call& call);
  /// Names the dimensions of the operand that is this argument, if it is there.
  void name(const Call& call, int64_t argument, std::string dims);

  std::vector<std::string> operands;
  std::vector<ResultLabels> results;
  Linear linear = Linear::kNo;
  std::vector<int64_t> linear_in = {};  ///< numbers of operands
  /// Letters of which every rank must have something, as the operation refuses tensors without elements there.
  std::string needed = {};
  /// An operand that is added to the result, once: where that is Partial, so is it. -1: none.
  int64_t added = -1;
};

using LabelsOf = std::function<Labels(const Call&)>;

/// "abc" for three dimensions, "b.d" where `is_whole` says so.
std::string letters(int64_t ndim);
std::string letters(int64_t ndim, const std::vector<bool>& is_whole);
/// The letters of a tensor that is broadcast to `sizes`, whose dimensions are named by number.
std::string broadcast_letters(c10::IntArrayRef of, c10::IntArrayRef sizes);

/// A rule of these labels. `run`: as Rule::run.
Rule labelled(LabelsOf labels, std::function<void(Call&, const Plan&)> run = {});
void add_options(const Labels& labels, const Call& call, const Axis& axis, std::vector<Option>& options);
/// Sizes by labels; the others, of dimensions that are never cut, are those of the local results.
std::vector<Shape> shapes_by(const Labels& labels, Call& call);

}  // namespace cohort::dtensor
