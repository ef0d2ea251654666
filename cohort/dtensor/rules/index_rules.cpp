// Elements selected by index or mask, and writes to them; padding, repetition and diagonals.
#include <ATen/ATen.h>
#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/local_steps.h"
#include "cohort/dtensor/rules/rules.h"

namespace cohort::dtensor {
namespace {

bool is_mask(const at::Tensor& index) { return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte; }

// The letters of x[i, :, j]. A mask takes as many dimensions as it has, and gives one.
struct IndexDims {
  explicit IndexDims(const Call& call) : operand(letters(call.operand(0).dim())) {
    std::string left;
    int64_t dim = 0, first = -1;
    bool has_ended = false, is_apart = false;
    size_t num_index_dims = 0;
    for (const auto& item : call.argument(1).toListRef()) {
      if (item.isNone() || !item.toTensor().defined()) {
        ++dim;
        has_ended = first >= 0;
        continue;
      }
      const auto& index = item.toTensor();
      is_apart |= has_ended;
      if (first < 0) first = dim;
      num_index_dims = std::max<size_t>(num_index_dims, is_mask(index) ? 1 : index.dim());
      for (int64_t count = is_mask(index) ? index.dim() : 1; count > 0 && dim < call.operand(0).dim(); --count) {
        operand[dim++] = kUnsharded;
      }
    }
    for (const char one : operand) left += one == kUnsharded ? "" : std::string{one};
    result = left;
    result.insert(is_apart ? 0 : static_cast<size_t>(std::max<int64_t>(first, 0)),
                  std::string(num_index_dims, kUnsharded));
  }
  std::string operand, result;
};

// Returns the letters of values that are broadcast to `dims`.
std::string dims_of_values(const Call& call, const Operand& values, const std::string& dims) {
  std::string result(values.sizes().size(), kUnsharded);
  for (size_t i = 1; i <= std::min(result.size(), dims.size()); ++i) {
    const char one = dims[dims.size() - i];
    if (one == kUnsharded) continue;
    const bool is_all = values.sizes()[result.size() - i] == call.operand(0).sizes()[one - letter(0)];
    if (is_all) result[result.size() - i] = one;
  }
  return result;
}

Rule index() {
  auto rule = labeled([](const Call& call) {
    Labels labels(call);
    const IndexDims dims(call);
    labels.operands[0] = dims.operand;
    labels.results[0].dims = dims.result;
    labels.linear = Linear::kEach;
    labels.linear_in = {0};
    return labels;
  });
  rule.shapes_vary = true;  // with a mask
  return rule;
}

Rule index_put() {
  return labeled([](const Call& call) {
    Labels labels(call);
    const IndexDims dims(call);
    labels.operands[0] = dims.operand;
    const auto values = call.operand_of(2);
    labels.operands[values] = dims_of_values(call, call.operand(values), dims.result);
    labels.results[0].dims = dims.operand;
    return labels;
  });
}

// Needs the full tensor; the number of results depends on the values.
Rule replicated_by_values() {
  auto rule = labeled([](const Call& call) { return Labels(call); });
  rule.shapes_vary = true;
  return rule;
}

Rule index_select() {
  return labeled([](const Call& call) {
    Labels labels(call);
    const int64_t ndim = call.operand(0).dim();
    constexpr char kIndices = 'y';
    if (ndim == 0) return labels;
    const auto dim = call.dim_argument(1, ndim);
    auto dims = letters(ndim);
    dims[dim] = kUnsharded;
    labels.operands[0] = dims;
    dims[dim] = call.operand(1).dim() == 0 ? kUnsharded : kIndices;
    labels.operands[1] = call.operand(1).dim() == 0 ? "" : std::string{kIndices};
    labels.results[0].dims = dims;
    labels.linear = Linear::kEach;
    labels.linear_in = {0};
    return labels;
  });
}

// Operands: the tensor, indices along the dim that is argument 1, and the values to write, if they are a tensor.
Rule put_along() {
  return labeled([](const Call& call) {
    Labels labels(call);
    const int64_t ndim = call.operand(0).dim();
    if (ndim == 0) return labels;
    auto dims = letters(ndim);
    dims[call.dim_argument(1, ndim)] = kUnsharded;
    labels.operands[0] = dims;
    if (labels.operands.size() > 2 && call.operand(2).dim() == ndim) labels.operands[2] = dims;
    labels.results[0].dims = dims;
    return labels;
  });
}

// ---- One operand: values at other places, or several times ----

using DimsOf = std::function<std::string(const Call&)>;

// Dims that are not kUnsharded stay the same. `needs_all`: each rank needs at least one element of them.
Rule kept(DimsOf dims_of, Linear linear, bool needs_all = false) {
  return labeled([dims_of, linear, needs_all](const Call& call) {
    Labels labels(call);
    const auto dims = dims_of(call);
    for (auto& operand : labels.operands) operand = dims;
    labels.results[0].dims = dims;
    if (needs_all) labels.needed = dims;
    labels.linear = linear;
    labels.linear_in = {0};
    return labels;
  });
}

std::string not_rolled(const Call& call) {
  return letters(call.operand(0).dim(), call.dims_argument(2, call.operand(0).dim()));
}

// Padding has two numbers per dimension, from the last dimension on.
std::string not_padded(const Call& call) {
  const int64_t ndim = call.operand(0).dim();
  const auto pads = call.argument(1).toIntVector();
  auto dims = letters(ndim);
  for (size_t i = 0; i < pads.size(); ++i) {
    const auto dim = ndim - 1 - static_cast<int64_t>(i / 2);
    if (pads[i] != 0 && dim >= 0) dims[dim] = kUnsharded;
  }
  return dims;
}

// Padding with 0 also works on partial values.
Rule constant_pad() {
  return labeled([](const Call& call) {
    Labels labels(call);
    labels.operands[0] = labels.results[0].dims = not_padded(call);
    const bool is_zero = call.argument(2).toScalar().equal(0);
    labels.linear = is_zero ? Linear::kEach : Linear::kNo;
    labels.linear_in = {0};
    return labels;
  });
}

DimsOf all_but_the_last(int64_t count) {
  return [count](const Call& call) {
    const int64_t ndim = call.operand(0).dim();
    auto dims = letters(ndim);
    for (int64_t dim = std::max<int64_t>(ndim - count, 0); dim < ndim; ++dim) dims[dim] = kUnsharded;
    return dims;
  };
}

Rule repeat() {
  return labeled([](const Call& call) {
    Labels labels(call);
    const auto repeats = call.argument(1).toIntVector();
    const int64_t ndim = call.operand(0).dim();
    const auto missing = static_cast<int64_t>(repeats.size()) - ndim;
    auto dims = letters(ndim);
    for (int64_t dim = 0; dim < ndim && missing >= 0; ++dim) {
      if (repeats[dim + missing] != 1) dims[dim] = kUnsharded;
    }
    labels.operands[0] = dims;
    labels.results[0].dims = std::string(std::max<int64_t>(missing, 0), kUnsharded) + dims;
    labels.linear = Linear::kCopies;
    return labels;
  });
}

// ---- Diagonals ----

// The letters of a tensor with `ndim` dimensions, and of its diagonal, which is the result's last dimension.
struct DiagonalDims {
  DiagonalDims(const Call& call, int64_t ndim, size_t first_argument) : full(letters(ndim)) {
    for (const size_t argument : {first_argument, first_argument + 1}) {
      full[call.dim_argument(argument, ndim)] = kUnsharded;
    }
    for (const char one : full) diagonal += one == kUnsharded ? "" : std::string{one};
    diagonal += kUnsharded;
  }
  std::string full, diagonal;
};

Rule diagonal() {
  return labeled([](const Call& call) {
    Labels labels(call);
    const DiagonalDims dims(call, call.operand(0).dim(), 2);
    labels.operands[0] = dims.full;
    labels.results[0].dims = dims.diagonal;
    labels.linear = Linear::kCopies;
    return labels;
  });
}

Rule diagonal_backward() {
  return labeled(
      [](const Call& call) {
        Labels labels(call);
        const DiagonalDims dims(call, static_cast<int64_t>(call.argument(1).toIntVector().size()), 3);
        labels.operands[0] = dims.diagonal;
        labels.results[0].dims = dims.full;
        labels.linear = Linear::kCopies;
        return labels;
      },
      [](Call& call, const Plan& plan) { run_with_local_sizes(call, plan, 1); });
}

}  // namespace

void add_index_rules() {
  for (const char* name : {"index.Tensor", "_unsafe_index.Tensor"}) add_rule(std::string("aten::") + name, index());
  add_rule_and_in_place("aten::index_put", index_put());
  add_rule("aten::_index_put_impl_", index_put());
  for (const char* name : {"masked_select", "nonzero"}) add_rule(std::string("aten::") + name, replicated_by_values());
  add_rule_and_in_place("aten::masked_scatter", replicated_by_values());
  add_rule("aten::index_select", index_select());
  for (const char* name : {"index_add", "index_copy", "index_fill.int_Scalar", "index_fill.int_Tensor"}) {
    add_rule_and_in_place(std::string("aten::") + name, put_along());
  }
  add_rule("aten::roll", kept(not_rolled, Linear::kCopies));
  add_rule("aten::constant_pad_nd", constant_pad());
  int64_t num_dims = 0;
  for (const char* dims : {"1d", "2d", "3d"}) {
    ++num_dims;
    for (const char* kind : {"reflection_pad", "replication_pad"}) {
      const auto name = std::string("aten::") + kind + dims;
      add_rule(name, kept(all_but_the_last(num_dims), Linear::kEach, true));
      add_rule(name + "_backward", kept(all_but_the_last(num_dims), Linear::kNo, true));
    }
  }
  add_rule("aten::repeat", repeat());
  add_rule("aten::diagonal", diagonal());
  add_rule("aten::diagonal_backward", diagonal_backward());
}

}  // namespace cohort::dtensor
