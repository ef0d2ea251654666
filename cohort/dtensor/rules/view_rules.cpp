// Other shapes of the same elements, and parts of a tensor.
#include <ATen/ATen.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>

#include <algorithm>
#include <string>

#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/rules.h"
#include "cohort/dtensor/rules/view_placement.h"

namespace cohort::dtensor {
namespace {

using DimsOf = std::function<std::string(const Call&)>;

// Where every dimension of the result is one of the operand's, in whatever order: its strides. Else none.
std::vector<int64_t> rearranged_strides(const Call& call, const std::string& from, const std::string& to) {
  std::vector<int64_t> strides;
  for (const char one : to) {
    const auto dim = one == kWhole ? std::string::npos : from.find(one);
    if (dim == std::string::npos) return {};
    strides.push_back(call.operand(0).tensor.strides()[dim]);
  }
  return strides;
}

// One operand with letters, `dims`, and what becomes of them.
Rule rearranged(DimsOf operand_dims, std::function<std::string(const Call&, std::string)> result_dims,
                std::function<void(Call&, const Plan&)> run = {}) {
  const auto labels_of = [operand_dims, result_dims](const Call& call) {
    Labels labels(call);
    labels.operands[0] = operand_dims(call);
    for (auto& result : labels.results) result.dims = result_dims(call, labels.operands[0]);
    labels.linear = Linear::kCopies;
    return labels;
  };
  auto rule = labelled(labels_of, std::move(run));
  rule.shapes = [labels_of](Call& call, const Plan&) {
    const auto labels = labels_of(call);
    auto shapes = shapes_by(labels, call);
    for (auto& shape : shapes) shape.strides = rearranged_strides(call, labels.operands[0], labels.results[0].dims);
    return shapes;
  };
  return rule;
}

std::string all_dims(const Call& call) { return letters(call.operand(0).dim()); }

// All but the dim that is argument `index`.
DimsOf dims_but(int64_t index) {
  return [index](const Call& call) {
    auto dims = all_dims(call);
    dims[call.dim_argument(index, call.operand(0).dim())] = kWhole;
    return dims;
  };
}

std::string same(const Call&, std::string dims) { return dims; }

std::string without_dim_argument(const Call& call, std::string dims) {
  dims.erase(call.dim_argument(1, call.operand(0).dim()), 1);
  return dims;
}

// ---- dimensions in another order ----

std::string permuted(const Call& call, std::string dims) {
  std::string result;
  const auto ndim = static_cast<int64_t>(dims.size());
  for (const int64_t dim : call.argument(1).toIntVector()) result += dims[dim < 0 ? dim + ndim : dim];
  return result;
}

std::string transposed(const Call& call, std::string dims) {
  const auto ndim = static_cast<int64_t>(dims.size());
  if (ndim > 0) std::swap(dims[call.dim_argument(1, ndim)], dims[call.dim_argument(2, ndim)]);
  return dims;
}

std::string reversed(const Call&, std::string dims) { return {dims.rbegin(), dims.rend()}; }

Rule t() {
  auto rule = rearranged(all_dims, reversed);
  rule.view = ViewKind::kTransposed;
  return rule;
}

// ---- dimensions of one element ----

// Which dims squeeze takes: of the whole's size, as a part may have one element as well.
std::vector<bool> squeezed_dims(const Call& call) {
  const auto sizes = call.operand(0).sizes();
  const auto ndim = static_cast<int64_t>(sizes.size());
  auto flags = call.num_arguments() == 1 ? std::vector<bool>(ndim, true) : call.dims_argument(1, ndim);
  for (int64_t dim = 0; dim < ndim; ++dim) flags[dim] = flags[dim] && sizes[dim] == 1;
  return flags;
}

std::string squeezed(const Call& call, std::string dims) {
  const auto flags = squeezed_dims(call);
  std::string result;
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    if (!flags[dim]) result += dims[dim];
  }
  return result;
}

void run_squeeze(Call& call, const Plan&) {
  std::vector<int64_t> dims;
  const auto flags = squeezed_dims(call);
  for (size_t dim = 0; dim < flags.size(); ++dim) {
    if (flags[dim]) dims.push_back(static_cast<int64_t>(dim));
  }
  call.finish({dims.empty() ? at::alias(call.local_tensor(0)) : at::squeeze(call.local_tensor(0), dims)});
}

Rule squeeze() {
  return rearranged([](const Call& call) { return letters(call.operand(0).dim(), squeezed_dims(call)); }, squeezed,
                    run_squeeze);
}

std::string unsqueezed(const Call& call, std::string dims) {
  dims.insert(call.dim_argument(1, call.operand(0).dim() + 1), 1, kWhole);
  return dims;
}

// ---- other sizes ----

std::vector<int64_t> viewed_sizes(const Call& call) {
  return at::infer_size(call.argument(1).toIntVector(), call.operand(0).tensor.numel());
}

void view_options(const Call& call, const Axis& axis, std::vector<Option>& options) {
  Placements placements;
  for (int64_t one = 0; one < call.mesh().ndim(); ++one) placements.push_back(call.placement(0, one));
  const auto ways = viewed(placements, call.operand(0).sizes(), viewed_sizes(call), call.mesh().shape());
  options.push_back({{ways.kept[axis.index]}, {ways.viewed[axis.index]}});
}

std::vector<Shape> view_shapes(Call& call, const Plan&) {
  const auto& tensor = call.operand(0).tensor;
  const auto sizes = viewed_sizes(call);
  const auto strides = at::detail::computeStride(tensor.sizes(), tensor.strides(), sizes);
  return {{sizes, strides.value_or(std::vector<int64_t>())}};
}

// A part of a tensor that can be viewed may have to be copied, where it has gaps.
void run_view(Call& call, const Plan& plan) {
  call.finish({call.local_tensor(0).reshape(local_sizes(call.mesh(), plan.results[0], viewed_sizes(call)))});
}

Rule view() { return {.options = view_options, .shapes = view_shapes, .run = run_view, .view = ViewKind::kInOrder}; }

// What it gives counts as a new tensor, whose memory is the operand's.
Rule unsafe_view() {
  auto rule = view();
  rule.view = ViewKind::kNone;
  rule.shares_memory = true;
  return rule;
}

std::vector<int64_t> expanded_sizes(const Call& call) {
  auto sizes = call.argument(1).toIntVector();
  const auto of = call.operand(0).sizes();
  const size_t missing = sizes.size() - of.size();
  for (size_t dim = missing; dim < sizes.size(); ++dim) {
    if (sizes[dim] == -1) sizes[dim] = of[dim - missing];
  }
  return sizes;
}

Labels expand_labels(const Call& call) {
  Labels labels(call);
  const auto sizes = expanded_sizes(call);
  labels.operands[0] = broadcast_letters(call.operand(0).sizes(), sizes);
  labels.results[0].dims = letters(static_cast<int64_t>(sizes.size()));
  labels.linear = Linear::kCopies;
  return labels;
}

// As LibTorch has them: 0 where one element stands for many.
std::vector<Shape> expand_shapes(Call& call, const Plan&) {
  const auto sizes = expanded_sizes(call);
  const auto& tensor = call.operand(0).tensor;
  std::vector<int64_t> strides(sizes.size(), 0);
  const size_t missing = sizes.size() - static_cast<size_t>(tensor.dim());
  for (size_t dim = missing; dim < sizes.size(); ++dim) {
    if (tensor.sizes()[dim - missing] == sizes[dim]) strides[dim] = tensor.strides()[dim - missing];
  }
  return {{sizes, strides}};
}

void run_expand(Call& call, const Plan& plan) {
  call.finish({call.local_tensor(0).expand(local_sizes(call.mesh(), plan.results[0], expanded_sizes(call)))});
}

Rule expand() {
  auto rule = labelled(expand_labels, run_expand);
  rule.shapes = expand_shapes;
  return rule;
}

// ---- parts ----

bool takes_all(const Call& call) {
  const auto size = call.operand(0).sizes()[call.dim_argument(1, call.operand(0).dim())];
  const auto number = [&](size_t index, int64_t otherwise) {
    return call.argument(index).isNone() ? otherwise : call.argument(index).toInt();
  };
  const int64_t start = number(2, 0);
  return (start == 0 || start <= -size) && number(3, size) >= size && number(4, 1) == 1;
}

std::string sliced_dims(const Call& call) { return takes_all(call) ? all_dims(call) : dims_but(1)(call); }

// Whether an axis before this one cuts dim `dim` of the operand.
bool is_cut_before(const Call& call, size_t operand, const Axis& axis, int64_t dim) {
  for (int64_t before = 0; before < axis.index; ++before) {
    const auto& placement = call.placement(operand, before);
    if (placement.is_shard_like() && placement.dim() == dim) return true;
  }
  return false;
}

// Parts of equal size along a dim of which each rank has a chunk of every part: nothing moves.
void split_options(const Call& call, const Axis& axis, std::vector<Option>& options) {
  const auto& now = call.placement(0, axis.index);
  const int64_t dim = call.dim_argument(2, call.operand(0).dim());
  if (!now.is_strided_shard() || now.dim() != dim || is_cut_before(call, 0, axis, dim)) return;
  if (call.argument(1).toInt() * now.split_factor() == call.operand(0).sizes()[dim]) {
    options.push_back({{now}, {Shard(dim)}});
  }
}

void run_split(Call& call, const Plan& plan) {
  const int64_t dim = call.dim_argument(2, call.operand(0).dim());
  int64_t num_parts = 0;
  for (const auto& placement : plan.operands[0]) {
    if (placement.is_strided_shard() && placement.dim() == dim) num_parts = placement.split_factor();
  }
  if (num_parts == 0) return call.run();
  const auto& local = call.local_tensor(0);
  const int64_t part = local.size(dim) / num_parts;
  call.finish({part == 0 ? std::vector<at::Tensor>(num_parts, local) : local.split(part, dim)});
}

Rule split() {
  auto rule = rearranged(dims_but(2), same, run_split);
  rule.options = [general = rule.options](const Call& call, const Axis& axis, std::vector<Option>& options) {
    split_options(call, axis, options);
    general(call, axis, options);
  };
  rule.shapes = [](Call& call, const Plan&) {
    const int64_t dim = call.dim_argument(2, call.operand(0).dim());
    const int64_t size = call.operand(0).sizes()[dim], part = call.argument(1).toInt();
    std::vector<Shape> shapes;
    for (int64_t begin = 0; begin == 0 || begin < size; begin += part) {
      auto& sizes = shapes.emplace_back(Shape{call.operand(0).sizes().vec()}).sizes;
      sizes[dim] = std::min(part, size - begin);
    }
    return shapes;
  };
  return rule;
}

// ---- several tensors in one ----

bool are_equal(const Call& call) {
  return std::all_of(call.operands().begin(), call.operands().end(),
                     [&](const auto& one) { return one.sizes() == call.operand(0).sizes(); });
}

Labels cat_labels(const Call& call) {
  Labels labels(call);
  const auto is_skipped = [](const Operand& one) { return one.dim() == 1 && one.sizes()[0] == 0; };
  int64_t ndim = 0;
  for (const auto& one : call.operands()) ndim = is_skipped(one) ? ndim : one.dim();
  const int64_t dim = call.dim_argument(1, ndim);
  auto dims = letters(ndim);
  if (ndim > 0) dims[dim] = kWhole;
  for (size_t i = 0; i < labels.operands.size(); ++i) labels.operands[i] = is_skipped(call.operand(i)) ? "" : dims;
  labels.results[0].dims = dims;
  labels.linear = Linear::kTogether;
  return labels;
}

// What split makes of a StridedShard, the other way round.
void cat_options(const Call& call, const Axis& axis, std::vector<Option>& options) {
  const int64_t dim = call.dim_argument(1, call.operand(0).dim());
  const auto count = static_cast<int64_t>(call.operands().size());
  const auto is_cut = [&](int64_t i) {
    return call.placement(i, axis.index).is_shard(dim) && !is_cut_before(call, i, axis, dim);
  };
  bool any_cut = false;
  for (int64_t i = 0; i < count; ++i) any_cut |= is_cut(i);
  if (any_cut && are_equal(call) && count > 1) {
    options.push_back({Placements(count, Shard(dim)), {StridedShard(dim, count)}});
  }
}

Rule cat() {
  auto rule = labelled(cat_labels);
  rule.options = [general = rule.options](const Call& call, const Axis& axis, std::vector<Option>& options) {
    cat_options(call, axis, options);
    general(call, axis, options);
  };
  rule.shapes = [](Call& call, const Plan&) {
    auto sizes = call.operand(0).sizes().vec();
    const int64_t dim = sizes.empty() ? 0 : call.dim_argument(1, static_cast<int64_t>(sizes.size()));
    if (!sizes.empty()) sizes[dim] = 0;
    for (const auto& one : call.operands()) {
      if (one.dim() != static_cast<int64_t>(sizes.size())) sizes = one.sizes().vec(), sizes[dim] = 0;
    }
    for (const auto& one : call.operands()) {
      if (one.dim() == static_cast<int64_t>(sizes.size())) sizes[dim] += one.sizes()[dim];
    }
    return std::vector<Shape>{{sizes}};
  };
  return rule;
}

Labels stack_labels(const Call& call) {
  Labels labels(call);
  const int64_t ndim = call.operand(0).dim();
  for (auto& dims : labels.operands) dims = letters(ndim);
  auto dims = letters(ndim);
  dims.insert(call.dim_argument(1, ndim + 1), 1, kWhole);
  labels.results[0].dims = dims;
  labels.linear = Linear::kTogether;
  return labels;
}

// ---- gradients of parts: zeros around them ----

// Argument 1 is the whole's sizes, argument 2 the dim; `has_dim`: the gradient has the dim as well.
Rule part_backward(bool has_dim) {
  return labelled(
      [has_dim](const Call& call) {
        Labels labels(call);
        const auto sizes = call.argument(1).toIntVector();
        const auto ndim = static_cast<int64_t>(sizes.size());
        auto dims = letters(ndim);
        const int64_t dim = call.dim_argument(2, ndim);
        const bool is_all = has_dim && call.operand(0).sizes()[dim] == sizes[dim];
        if (!is_all) dims[dim] = kWhole;
        labels.results[0].dims = dims;
        if (!has_dim) dims.erase(dim, 1);
        labels.operands[0] = dims;
        labels.linear = Linear::kCopies;
        return labels;
      },
      [](Call& call, const Plan& plan) {
        call.local(1) = local_sizes(call.mesh(), plan.results[0], call.argument(1).toIntVector());
        call.run();
      });
}

}  // namespace

void add_view_rules() {
  for (const char* name : {"view", "_reshape_alias"}) add_rule(std::string("aten::") + name, view());
  add_rule("aten::_unsafe_view", unsafe_view());
  add_rule("aten::expand", expand());
  add_rule("aten::detach", rearranged(all_dims, same));
  add_rule("aten::alias", rearranged(all_dims, same));
  add_rule("aten::permute", rearranged(all_dims, permuted));
  add_rule("aten::transpose.int", rearranged(all_dims, transposed));
  add_rule("aten::t", t());
  for (const char* name : {"squeeze", "squeeze.dim", "squeeze.dims"}) add_rule(std::string("aten::") + name, squeeze());
  add_rule("aten::unsqueeze", rearranged(all_dims, unsqueezed));
  add_rule("aten::select.int", rearranged(dims_but(1), without_dim_argument));
  add_rule("aten::unbind.int", rearranged(dims_but(1), without_dim_argument));
  add_rule("aten::slice.Tensor", rearranged(sliced_dims, same));
  add_rule("aten::split.Tensor", split());
  add_rule("aten::split_with_sizes", rearranged(dims_but(2), same));
  add_rule("aten::cat", cat());
  add_rule("aten::stack", labelled(stack_labels));
  add_rule("aten::slice_backward", part_backward(/*has_dim=*/true));
  add_rule("aten::select_backward", part_backward(/*has_dim=*/false));
}

}  // namespace cohort::dtensor
