// Operations element by element, on tensors that are broadcast to one shape.
#include <ATen/ExpandUtils.h>

#include <initializer_list>
#include <string>

#include "cohort/dtensor/dispatch/global_shapes.h"
#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/rules.h"

namespace cohort::dtensor {
namespace {

std::vector<int64_t> broadcast_sizes(const Call& call) {
  auto sizes = call.operand(0).sizes().vec();
  for (size_t i = 1; i < call.operands().size(); ++i) sizes = at::infer_size(sizes, call.operand(i).sizes());
  const auto& first = call.operand(0);
  TORCH_CHECK(!first.is_written || first.sizes() == c10::IntArrayRef(sizes), "output with shape ", first.sizes(),
              " doesn't match the broadcast shape ", c10::IntArrayRef(sizes));
  return sizes;
}

Labels pointwise_labels(const Call& call, Linear linear) {
  Labels labels(call);
  const auto sizes = broadcast_sizes(call);
  for (size_t i = 0; i < labels.operands.size(); ++i) {
    labels.operands[i] = broadcast_letters(call.operand(i).sizes(), sizes);
  }
  for (auto& result : labels.results) result.dims = letters(static_cast<int64_t>(sizes.size()));
  labels.linear = linear;
  return labels;
}

// The result has the memory order of the first operand that is not broadcast; copies may ask for another one. The local tensor
// does not show the order: a shard of a single row may be in any order.
std::vector<Shape> pointwise_shapes(Call& call, std::optional<at::MemoryFormat> format = {}) {
  const auto sizes = broadcast_sizes(call);
  for (const auto& operand : call.operands()) {
    if (operand.sizes() == c10::IntArrayRef(sizes)) {
      return std::vector<Shape>(call.num_results(), shape_like(operand.tensor, format));
    }
  }
  const auto strides = c10::contiguous_strides(sizes);
  return std::vector<Shape>(call.num_results(), Shape{sizes, {strides.begin(), strides.end()}});
}

Rule pointwise_rule(LabelsOf labels) {
  auto rule = labeled(std::move(labels));
  rule.shapes = [](Call& call, const Plan&) { return pointwise_shapes(call); };
  return rule;
}

Rule pointwise(Linear linear = Linear::kNo, std::initializer_list<int64_t> linear_in = {}) {
  const std::vector<int64_t> in = linear_in;
  return pointwise_rule([linear, in](const Call& call) {
    auto labels = pointwise_labels(call, linear);
    labels.linear_in = in;
    return labels;
  });
}

// Whether this rank adds a number: one rank does for a sum, every rank for an average.
bool adds_here(const Call& call, const Plan& plan) {
  for (int64_t axis = 0; axis < call.mesh().ndim(); ++axis) {
    const auto& placement = plan.operands[0][axis];
    if (placement.is_partial() && placement.reduce_op() == "sum" && (*call.mesh().coordinate())[axis] != 0)
      return false;
  }
  return true;
}

// In place: x.add_(number).
Rule added_number() {
  auto rule = pointwise(Linear::kEach, {0});
  rule.run = [](Call& call, const Plan& plan) {
    if (adds_here(call, plan)) return call.run();
    call.finish({call.local_tensor(0)});
  };
  return rule;
}

// Copies keep a Partial if the dtype can hold its values.
Rule copies() {
  auto rule = labeled([](const Call& call) {
    const bool is_cast = call.name() == "aten::_to_copy";
    const bool to_float = !is_cast || call.argument(1).isNone() || at::isFloatingType(call.argument(1).toScalarType());
    return pointwise_labels(call, to_float ? Linear::kCopies : Linear::kNo);
  });
  rule.view = ViewKind::kCopy;
  rule.shapes = [](Call& call, const Plan&) {
    return pointwise_shapes(call, call.argument(call.num_arguments() - 1).toOptional<at::MemoryFormat>());
  };
  return rule;
}

// Filling with 0 also works on partial values.
Rule masked_fill() {
  return pointwise_rule([](const Call& call) {
    const bool is_zero = call.argument(2).toScalar().equal(0);
    auto labels = pointwise_labels(call, is_zero ? Linear::kEach : Linear::kNo);
    labels.linear_in = {0};
    return labels;
  });
}

constexpr const char* kNonLinear[] = {"add.Scalar",
                                      "sub.Scalar",
                                      "rsub.Scalar",
                                      "rsub.Tensor",
                                      "div.Tensor_mode",
                                      "div.Scalar_mode",
                                      "abs",
                                      "exp",
                                      "exp2",
                                      "expm1",
                                      "log",
                                      "log2",
                                      "log10",
                                      "log1p",
                                      "sqrt",
                                      "rsqrt",
                                      "reciprocal",
                                      "square",
                                      "pow.Tensor_Scalar",
                                      "pow.Tensor_Tensor",
                                      "pow.Scalar",
                                      "sigmoid",
                                      "log_sigmoid_forward",
                                      "log_sigmoid_backward",
                                      "tanh",
                                      "relu",
                                      "gelu",
                                      "silu",
                                      "elu",
                                      "leaky_relu",
                                      "hardtanh",
                                      "hardswish",
                                      "hardsigmoid",
                                      "mish",
                                      "softplus",
                                      "threshold",
                                      "clamp",
                                      "clamp.Tensor",
                                      "clamp_min",
                                      "clamp_min.Tensor",
                                      "clamp_max",
                                      "clamp_max.Tensor",
                                      "minimum",
                                      "maximum",
                                      "fmin",
                                      "fmax",
                                      "where.self",
                                      "masked_fill.Tensor",
                                      "eq.Scalar",
                                      "eq.Tensor",
                                      "ne.Scalar",
                                      "ne.Tensor",
                                      "lt.Scalar",
                                      "lt.Tensor",
                                      "le.Scalar",
                                      "le.Tensor",
                                      "gt.Scalar",
                                      "gt.Tensor",
                                      "ge.Scalar",
                                      "ge.Tensor",
                                      "logical_not",
                                      "logical_and",
                                      "logical_or",
                                      "logical_xor",
                                      "bitwise_not",
                                      "bitwise_and.Tensor",
                                      "bitwise_or.Tensor",
                                      "bitwise_xor.Tensor",
                                      "bitwise_and.Scalar",
                                      "bitwise_or.Scalar",
                                      "isnan",
                                      "isinf",
                                      "sign",
                                      "sgn",
                                      "angle",
                                      "complex",
                                      "polar",
                                      "sin",
                                      "cos",
                                      "tan",
                                      "atan",
                                      "erf",
                                      "floor",
                                      "ceil",
                                      "round",
                                      "trunc",
                                      "frac",
                                      "remainder.Scalar",
                                      "remainder.Tensor",
                                      "fmod.Scalar",
                                      "fmod.Tensor",
                                      "floor_divide",
                                      "floor_divide.Scalar",
                                      "lerp.Scalar",
                                      "lerp.Tensor",
                                      "addcmul",
                                      "addcdiv",
                                      "xlogy.Tensor",
                                      "nan_to_num",
                                      "heaviside",
                                      "threshold_backward",
                                      "gelu_backward",
                                      "tanh_backward",
                                      "sigmoid_backward",
                                      "silu_backward",
                                      "elu_backward",
                                      "leaky_relu_backward",
                                      "hardtanh_backward",
                                      "hardswish_backward",
                                      "hardsigmoid_backward",
                                      "softplus_backward",
                                      "mish_backward",
                                      "native_dropout_backward"};

}  // namespace

void add_pointwise_rules() {
  for (const char* name : kNonLinear) add_rule_and_in_place(std::string("aten::") + name, pointwise());
  for (const char* name : {"neg", "mul.Scalar", "div.Scalar", "_conj_physical", "conj_physical_"}) {
    add_rule_and_in_place(std::string("aten::") + name, pointwise(Linear::kEach, {0}));
  }
  for (const char* name : {"add.Tensor", "sub.Tensor"}) {
    add_rule_and_in_place(std::string("aten::") + name, pointwise(Linear::kTogether));
  }
  for (const char* name : {"add_.Scalar", "sub_.Scalar"}) add_rule(std::string("aten::") + name, added_number());
  for (const char* name : {"pow_.Tensor", "pow_.Scalar"}) add_rule(std::string("aten::") + name, pointwise());
  add_rule_and_in_place("aten::mul.Tensor", pointwise(Linear::kEach, {0, 1}));
  add_rule_and_in_place("aten::masked_fill.Scalar", masked_fill());
  add_rule_and_in_place("aten::div.Tensor", pointwise(Linear::kEach, {0}));
  for (const char* name : {"aten::clone", "aten::_to_copy", "aten::copy_"}) add_rule(name, copies());
}

}  // namespace cohort::dtensor
