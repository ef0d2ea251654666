// Sums, extremes and norms over dimensions; and operations that scan along one dimension.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <string>

#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/local_steps.h"
#include "cohort/dtensor/rules/rules.h"

namespace cohort::dtensor {
namespace {

// Returns flags of the reduced dims, from argument `dims`; -1 means that the operation has no such argument.
std::vector<bool> reduced_dims(const Call& call, int64_t dims) {
  const int64_t ndim = call.operand(0).dim();
  return dims < 0 ? std::vector<bool>(ndim, true) : call.dims_argument(dims, ndim);
}

bool keeps_dims(const Call& call, int64_t keepdim) { return keepdim >= 0 && call.argument(keepdim).toBool(); }

struct Reduction {
  int64_t dims = -1;     ///< the number of the argument with dims
  int64_t keepdim = -1;  ///< the argument's number
};

// Returns the remaining letters, and the reduced ones.
ResultLabels reduced_labels(const Call& call, const Reduction& how) {
  ResultLabels result;
  const auto reduced = reduced_dims(call, how.dims);
  for (size_t dim = 0; dim < reduced.size(); ++dim) {
    if (!reduced[dim]) {
      result.dims += letter(static_cast<int64_t>(dim));
    } else {
      result.summed += letter(static_cast<int64_t>(dim));
      if (keeps_dims(call, how.keepdim)) result.dims += kUnsharded;
    }
  }
  return result;
}

Rule reduction(const Reduction& how, const std::string& reduce_op, std::function<void(Call&, const Plan&)> run = {}) {
  return labeled(
      [how, reduce_op](const Call& call) {
        Labels labels(call);
        labels.operands[0] = letters(call.operand(0).dim());
        labels.results[0] = reduced_labels(call, how);
        labels.results[0].reduce_op = reduce_op;
        if (reduce_op == "sum") labels.linear = Linear::kEach;
        labels.linear_in = {0};
        return labels;
      },
      std::move(run));
}

// Computes the mean over all ranks, whose shards may differ in size.
auto run_mean(const Reduction& how) {
  return [how](Call& call, const Plan& plan) {
    if (!crosses(plan, 0, reduced_dims(call, how.dims))) return call.run();
    const auto reduced = reduced_dims(call, how.dims);
    int64_t count = 1;
    for (size_t dim = 0; dim < reduced.size(); ++dim) count *= reduced[dim] ? call.operand(0).sizes()[dim] : 1;
    const auto& dtype = call.argument(call.num_arguments() - 1);
    const auto& local = call.local_tensor(0);
    const auto as = dtype.isNone() ? local.scalar_type() : dtype.toScalarType();
    const auto sum_as = at::isReducedFloatingType(as) ? at::kFloat : as;  // a sum may overflow where the mean does not
    const auto sum = at::sum(local, dims_of(reduced), keeps_dims(call, how.keepdim), sum_as);
    call.finish({sum.div_(count).to(as)});
  };
}

Rule mean(const Reduction& how) { return reduction(how, "sum", run_mean(how)); }

// Returns the sizes of an empty shard's reduction.
std::vector<int64_t> sizes_of_empty(const Call& call, const Reduction& how) {
  std::vector<int64_t> sizes;
  const auto reduced = reduced_dims(call, how.dims);
  for (size_t dim = 0; dim < reduced.size(); ++dim) {
    if (!reduced[dim]) sizes.push_back(call.local_tensor(0).size(static_cast<int64_t>(dim)));
    if (reduced[dim] && keeps_dims(call, how.keepdim)) sizes.push_back(1);
  }
  return sizes;
}

// An empty shard has no extreme, so the neutral element stands for it.
auto run_extreme(const Reduction& how, bool is_max) {
  return [how, is_max](Call& call, const Plan&) {
    const auto& local = call.local_tensor(0);
    if (local.numel() > 0 || call.operand(0).tensor.numel() == 0) return call.run();
    call.finish({at::full(sizes_of_empty(call, how), extreme_of(local.scalar_type(), !is_max), local.options())});
  };
}

Rule extreme(const Reduction& how, bool is_max) {
  return reduction(how, is_max ? "max" : "min", run_extreme(how, is_max));
}

// Both the least and the greatest.
Rule extremes() {
  const Reduction how{1, 2};
  return labeled(
      [how](const Call& call) {
        Labels labels(call);
        labels.operands[0] = letters(call.operand(0).dim());
        for (auto& result : labels.results) result = reduced_labels(call, how);
        labels.results[0].reduce_op = "min";
        labels.results[1].reduce_op = "max";
        return labels;
      },
      [how](Call& call, const Plan&) {
        const auto& local = call.local_tensor(0);
        if (local.numel() > 0 || call.operand(0).tensor.numel() == 0) return call.run();
        const auto sizes = sizes_of_empty(call, how);
        call.finish({at::full(sizes, extreme_of(local.scalar_type(), true), local.options()),
                     at::full(sizes, extreme_of(local.scalar_type(), false), local.options())});
      });
}

// ---- Norms: of order p from the sum of powers, so that shards stay where they are ----

double order_of(const Call& call) { return call.argument(1).isNone() ? 2.0 : call.argument(1).toScalar().toDouble(); }

at::Tensor joined_norm(Call& call, const Plan& plan, const std::vector<bool>& reduced, const at::Tensor& norm,
                       double order) {
  if (std::isinf(order)) return reduced_over_shards(call, plan, 0, reduced, order > 0 ? "max" : "min", norm);
  if (order == 0) return reduced_over_shards(call, plan, 0, reduced, "sum", norm);
  return reduced_over_shards(call, plan, 0, reduced, "sum", norm.pow(order)).pow(1 / order);
}

auto run_norm(const Reduction& how) {
  return [how](Call& call, const Plan& plan) {
    const auto reduced = reduced_dims(call, how.dims);
    if (!crosses(plan, 0, reduced)) return call.run();
    const double order = order_of(call);
    auto local = call.local_tensor(0);
    const auto& last = call.argument(call.num_arguments() - 1);
    if (last.isInt() && call.num_arguments() == 5) local = local.to(last.toScalarType());
    if (std::isinf(order) && local.numel() == 0) {  // a neutral element for each missing one
      auto sizes = local.sizes().vec();
      for (auto& size : sizes) size = std::max<int64_t>(size, 1);
      local = at::full(sizes, order > 0 ? 0.0 : std::numeric_limits<double>::infinity(), local.options());
    }
    const auto norm = at::linalg_vector_norm(widened(local), order, dims_of(reduced), keeps_dims(call, how.keepdim));
    call.finish({joined_norm(call, plan, reduced, norm, order).to(c10::toRealValueType(local.scalar_type()))});
  };
}

Rule norm(const Reduction& how) {
  return labeled(
      [how](const Call& call) {
        Labels labels(call);
        labels.operands[0] = letters(call.operand(0).dim());
        labels.results[0] = reduced_labels(call, how);
        std::swap(labels.results[0].summed, labels.results[0].untouched);
        return labels;
      },
      run_norm(how));
}

// ---- Along a dimension, which must not be sharded ----

// Result and operands have the same letters, except the reduced ones.
Rule along(const Reduction& how) {
  return labeled([how](const Call& call) {
    Labels labels(call);
    labels.operands[0] = letters(call.operand(0).dim(), reduced_dims(call, how.dims));
    auto result = reduced_labels(call, how);
    result.summed.clear();
    for (auto& one : labels.results) one = result;
    return labels;
  });
}

// The results have the operands' dimensions; the dimension that is argument `dim` may change its size.
Rule scan(int64_t dim) {
  return labeled([dim](const Call& call) {
    Labels labels(call);
    const auto dims = letters(call.operand(0).dim(), call.dims_argument(dim, call.operand(0).dim()));
    for (auto& operand : labels.operands) operand = dims;
    for (auto& result : labels.results) result.dims = dims;
    return labels;
  });
}

// Selects or writes by indices along the dim that is argument 1; the other sizes are the same.
Rule indexed() {
  return labeled([](const Call& call) {
    Labels labels(call);
    const auto of = call.operand(0).sizes();
    auto dims = letters(call.operand(0).dim(), call.dims_argument(1, call.operand(0).dim()));
    for (const auto& operand : call.operands()) {
      if (operand.sizes().size() != of.size()) continue;
      for (size_t dim = 0; dim < dims.size(); ++dim) {
        if (of[dim] != operand.sizes()[dim]) dims[dim] = kUnsharded;
      }
    }
    for (auto& operand : labels.operands) operand = dims;
    labels.results[0].dims = dims;
    return labels;
  });
}

Rule triangle() {
  return labeled([](const Call& call) {
    Labels labels(call);
    auto dims = letters(call.operand(0).dim());
    for (size_t dim = dims.size() < 2 ? 0 : dims.size() - 2; dim < dims.size(); ++dim) dims[dim] = kUnsharded;
    labels.operands[0] = dims;
    labels.results[0].dims = dims;
    labels.linear = Linear::kEach;
    labels.linear_in = {0};
    return labels;
  });
}

}  // namespace

void add_reduction_rules() {
  add_rule("aten::sum", reduction({}, "sum"));
  add_rule("aten::sum.dim_IntList", reduction({1, 2}, "sum"));
  add_rule("aten::mean", mean({}));
  add_rule("aten::mean.dim", mean({1, 2}));
  add_rule("aten::prod", reduction({}, "product"));
  add_rule("aten::prod.dim_int", reduction({1, 2}, "product"));
  add_rule("aten::amax", extreme({1, 2}, true));
  add_rule("aten::amin", extreme({1, 2}, false));
  add_rule("aten::max", extreme({}, true));
  add_rule("aten::min", extreme({}, false));
  add_rule("aten::linalg_vector_norm", norm({2, 3}));
  add_rule("aten::norm.Scalar", norm({}));
  add_rule("aten::norm.ScalarOpt_dim", norm({2, 3}));
  add_rule("aten::norm.ScalarOpt_dim_dtype", norm({2, 3}));
  for (const char* name : {"max.dim", "min.dim", "argmax", "argmin", "any.dim", "all.dim", "logsumexp", "median.dim",
                           "nanmedian.dim", "mode"}) {
    add_rule(std::string("aten::") + name, along({1, 2}));
  }
  add_rule("aten::kthvalue", along({2, 3}));
  for (const char* name : {"any", "all", "median", "nanmedian"}) add_rule(std::string("aten::") + name, along({}));
  for (const char* name : {"var.correction", "std.correction"}) add_rule(std::string("aten::") + name, along({1, 3}));
  for (const char* name : {"cumsum", "cumprod", "cummax", "cummin", "flip"}) {
    add_rule(std::string("aten::") + name, scan(1));
  }
  add_rule("aten::topk", scan(2));
  add_rule("aten::glu", scan(1));
  add_rule("aten::glu_backward", scan(2));
  add_rule("aten::aminmax", extremes());
  add_rule("aten::sort.stable", scan(2));
  add_rule("aten::sort", scan(1));
  add_rule("aten::gather", indexed());
  for (const char* name : {"scatter.src", "scatter.value"})
    add_rule_and_in_place(std::string("aten::") + name, indexed());
  add_rule_and_in_place("aten::scatter_add", indexed());
  for (const char* name : {"tril", "triu"}) add_rule_and_in_place(std::string("aten::") + name, triangle());
  add_rule("aten::_safe_softmax", scan(1));
}

}  // namespace cohort::dtensor
