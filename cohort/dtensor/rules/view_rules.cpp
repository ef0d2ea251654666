// Views: other shapes of the same elements, and slices of a tensor.
#include <ATen/ATen.h>
#include <ATen/InferSize.h>
#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <string>

#include "cohort/dtensor/dispatch/global_shapes.h"
#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/local_steps.h"
#include "cohort/dtensor/rules/rules.h"
#include "cohort/dtensor/rules/view_placement.h"

namespace cohort::dtensor {
namespace {

using DimsOf = std::function<std::string(const Call&)>;
using DimsAfter = std::function<std::string(const Call&, std::string)>;

std::vector<Shape> shapes_of_views(Call& call, const Plan&) { return global_shapes(call); }

// One operand with letters `dims`, and the result's letters from them.
Rule rearranged(DimsOf operand_dims, DimsAfter result_dims, std::function<void(Call&, const Plan&)> run = {},
                Linear linear = Linear::kCopies) {
  auto rule = labeled(
      [operand_dims = std::move(operand_dims), result_dims = std::move(result_dims), linear](const Call& call) {
        Labels labels(call);
        labels.operands[0] = operand_dims(call);
        for (auto& result : labels.results) result.dims = result_dims(call, labels.operands[0]);
        labels.linear = linear;
        return labels;
      },
      std::move(run));
  rule.shapes = shapes_of_views;
  return rule;
}

std::string all_dims(const Call& call) { return letters(call.operand(0).dim()); }

// All dims except the one that is argument `index`.
DimsOf dims_but(int64_t index) {
  return [index](const Call& call) {
    auto dims = all_dims(call);
    dims[call.dim_argument(index, call.operand(0).dim())] = kUnsharded;
    return dims;
  };
}

std::string same(const Call&, std::string dims) { return dims; }

std::string without_dim_argument(const Call& call, std::string dims) {
  dims.erase(call.dim_argument(1, call.operand(0).dim()), 1);
  return dims;
}

// ---- Dimensions in another order ----

std::string permuted(const Call& call, std::string dims) {
  std::string result;
  const auto ndim = static_cast<int64_t>(dims.size());
  for (const int64_t dim : call.argument(1).toIntVector()) result += dims[c10::maybe_wrap_dim(dim, ndim)];
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

// ---- Dimensions of one element ----

// Returns flags of the dims that squeeze removes, by global sizes: a shard may have one element as well.
std::vector<bool> squeezed_dims(const Call& call) {
  const auto sizes = call.operand(0).sizes();
  const auto ndim = static_cast<int64_t>(sizes.size());
  const bool takes_none =
      call.num_arguments() == 2 && call.argument(1).isIntList() && call.argument(1).toListRef().empty();
  auto flags = call.num_arguments() == 1 ? std::vector<bool>(ndim, true) : call.dims_argument(1, ndim);
  if (takes_none) flags.assign(ndim, false);
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
  dims.insert(call.dim_argument(1, call.operand(0).dim() + 1), 1, kUnsharded);
  return dims;
}

// ---- Other sizes ----

std::vector<int64_t> viewed_sizes(const Call& call) {
  return at::infer_size(call.argument(1).toIntVector(), call.operand(0).tensor.numel());
}

void view_options(const Call& call, const Axis& axis, std::vector<Option>& options) {
  Placements placements;
  for (int64_t one = 0; one < call.mesh().ndim(); ++one) placements.push_back(call.placement(0, one));
  const auto ways = viewed(placements, call.operand(0).sizes(), viewed_sizes(call), call.mesh().shape());
  options.push_back({{ways.kept[axis.index]}, {ways.viewed[axis.index]}});
}

// The local tensor of a tensor that can be viewed may have gaps, and must be copied then.
void run_view(Call& call, const Plan& plan) {
  call.finish({call.local_tensor(0).reshape(local_sizes(call.mesh(), plan.results[0], viewed_sizes(call)))});
}

Rule view() {
  return {.options = view_options, .shapes = shapes_of_views, .run = run_view, .view = ViewKind::kInOrder};
}

// The result counts as a new tensor that has the operand's memory.
Rule unsafe_view() {
  auto rule = view();
  rule.view = ViewKind::kNone;
  rule.shares_memory = true;
  return rule;
}

std::vector<int64_t> expanded_sizes(const Call& call) {
  auto sizes = call.argument(1).toIntVector();
  const auto of = call.operand(0).sizes();
  if (sizes.size() < of.size()) global_shapes(call);  // LibTorch refuses this
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

void run_expand(Call& call, const Plan& plan) {
  call.finish({call.local_tensor(0).expand(local_sizes(call.mesh(), plan.results[0], expanded_sizes(call)))});
}

Rule expand() {
  auto rule = labeled(expand_labels, run_expand);
  rule.shapes = shapes_of_views;
  return rule;
}

// ---- Slices ----

bool takes_all(const Call& call) {
  const auto size = call.operand(0).sizes()[call.dim_argument(1, call.operand(0).dim())];
  const auto number = [&](size_t index, int64_t otherwise) {
    return call.argument(index).isNone() ? otherwise : call.argument(index).toInt();
  };
  const int64_t start = number(2, 0);
  return (start == 0 || start <= -size) && number(3, size) >= size && number(4, 1) == 1;
}

std::string sliced_dims(const Call& call) { return takes_all(call) ? all_dims(call) : dims_but(1)(call); }

// Whether an earlier axis shards dim `dim` of the operand.
bool is_sharded_before(const Call& call, size_t operand, const Axis& axis, int64_t dim) {
  for (int64_t before = 0; before < axis.index; ++before) {
    const auto& placement = call.placement(operand, before);
    if (placement.is_shard_like() && placement.dim() == dim) return true;
  }
  return false;
}

// Slices of equal size along a dim of which each rank has a chunk of every slice: nothing moves.
void split_options(const Call& call, const Axis& axis, std::vector<Option>& options) {
  const auto& now = call.placement(0, axis.index);
  const int64_t dim = call.dim_argument(2, call.operand(0).dim());
  if (!now.is_strided_shard() || now.dim() != dim || is_sharded_before(call, 0, axis, dim)) return;
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
  return rule;
}

// ---- Complex numbers and signs ----

// A sum has the signs and the real parts of its summands; products and maxima do not.
Rule summed_view(DimsOf operand_dims, DimsAfter result_dims, std::function<void(Call&, const Plan&)> run = {}) {
  return rearranged(std::move(operand_dims), std::move(result_dims), std::move(run), Linear::kTogether);
}

std::string with_pairs(const Call&, const std::string& dims) { return dims + kUnsharded; }

// Both parts of a complex number stay together.
std::string all_but_pairs(const Call& call) {
  auto dims = all_dims(call);
  if (!dims.empty()) dims.back() = kUnsharded;
  return dims;
}

std::string without_pairs(const Call&, const std::string& dims) {
  return dims.substr(0, dims.empty() ? 0 : dims.size() - 1);
}

bool can_be_pairs(const at::Tensor& tensor) {
  const auto strides = tensor.strides();
  return tensor.storage_offset() % 2 == 0 && !strides.empty() && strides.back() == 1 &&
         std::all_of(strides.begin(), strides.end() - 1, [](int64_t stride) { return stride % 2 == 0; });
}

// Copies the local tensor if it has gaps that the full tensor does not have.
void run_view_as_complex(Call& call, const Plan&) {
  const auto& local = call.local_tensor(0);
  if (can_be_pairs(local)) return call.run();
  global_shapes(call);  // LibTorch may refuse
  call.finish({at::view_as_complex(local.clone(at::MemoryFormat::Contiguous))});
}

// ---- Several tensors in one ----

bool are_equal(const Call& call) {
  return std::all_of(call.operands().begin(), call.operands().end(),
                     [&](const auto& one) { return one.sizes() == call.operand(0).sizes(); });
}

// A one-dimensional empty tensor, which LibTorch's cat accepts beside any other.
bool is_skipped(const Operand& one) { return one.dim() == 1 && one.sizes()[0] == 0; }

int64_t cat_ndim(const Call& call) {
  int64_t ndim = 0;
  for (const auto& one : call.operands()) ndim = is_skipped(one) ? std::max<int64_t>(ndim, 1) : one.dim();
  return ndim;
}

Labels cat_labels(const Call& call) {
  Labels labels(call);
  const int64_t ndim = cat_ndim(call);
  const int64_t dim = call.dim_argument(1, ndim);
  auto dims = letters(ndim);
  if (ndim > 0) dims[dim] = kUnsharded;
  for (size_t i = 0; i < labels.operands.size(); ++i) labels.operands[i] = is_skipped(call.operand(i)) ? "" : dims;
  labels.results[0].dims = dims;
  labels.linear = Linear::kTogether;
  return labels;
}

// Adds the inverse of split_options: Shards become a StridedShard.
void cat_options(const Call& call, const Axis& axis, std::vector<Option>& options) {
  const int64_t dim = call.dim_argument(1, cat_ndim(call));
  const auto count = static_cast<int64_t>(call.operands().size());
  const auto is_sharded_there = [&](int64_t i) {
    return call.placement(i, axis.index).is_shard(dim) && !is_sharded_before(call, i, axis, dim);
  };
  bool any_sharded = false;
  for (int64_t i = 0; i < count; ++i) any_sharded |= is_sharded_there(i);
  if (any_sharded && are_equal(call) && count > 1) {
    options.push_back({Placements(count, Shard(dim)), {StridedShard(dim, count)}});
  }
}

Rule cat() {
  auto rule = labeled(cat_labels);
  rule.options = [general = rule.options](const Call& call, const Axis& axis, std::vector<Option>& options) {
    cat_options(call, axis, options);
    general(call, axis, options);
  };
  rule.shapes = shapes_of_views;
  return rule;
}

Labels stack_labels(const Call& call) {
  Labels labels(call);
  const int64_t ndim = call.operand(0).dim();
  for (auto& dims : labels.operands) dims = letters(ndim);
  auto dims = letters(ndim);
  dims.insert(call.dim_argument(1, ndim + 1), 1, kUnsharded);
  labels.results[0].dims = dims;
  labels.linear = Linear::kTogether;
  return labels;
}

// ---- Gradients of slices: zeros around them ----

// Argument 1 has the global sizes, argument 2 the dim. `has_dim`: the gradient also has the dim.
Rule part_backward(bool has_dim) {
  return labeled(
      [has_dim](const Call& call) {
        Labels labels(call);
        const auto sizes = call.argument(1).toIntVector();
        const auto ndim = static_cast<int64_t>(sizes.size());
        auto dims = letters(ndim);
        const int64_t dim = call.dim_argument(2, ndim);
        const bool is_all = has_dim && call.operand(0).sizes()[dim] == sizes[dim];
        if (!is_all) dims[dim] = kUnsharded;
        labels.results[0].dims = dims;
        if (!has_dim) dims.erase(dim, 1);
        labels.operands[0] = dims;
        labels.linear = Linear::kCopies;
        return labels;
      },
      [](Call& call, const Plan& plan) { run_with_local_sizes(call, plan, 1); });
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
  add_rule("aten::_conj", rearranged(all_dims, same));
  add_rule("aten::_neg_view", summed_view(all_dims, same));
  add_rule("aten::view_as_real", summed_view(all_dims, with_pairs));
  add_rule("aten::view_as_complex", summed_view(all_but_pairs, without_pairs, run_view_as_complex));
  add_rule("aten::cat", cat());
  add_rule("aten::stack", labeled(stack_labels));
  add_rule("aten::slice_backward", part_backward(/*has_dim=*/true));
  add_rule("aten::select_backward", part_backward(/*has_dim=*/false));
}

}  // namespace cohort::dtensor
