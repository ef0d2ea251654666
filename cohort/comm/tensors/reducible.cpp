#include "cohort/comm/tensors/reducible.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <cmath>

#include "cohort/comm/tensors/operation_text.h"

namespace cohort::comm {
namespace {

using Op = c10d::ReduceOp::RedOpType;

bool is_bitwise(Op op) { return op == Op::BAND || op == Op::BOR || op == Op::BXOR; }

double factor_of(const c10d::ReduceOp& op, const char* operation) {
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(supplement != nullptr, "[cohort] ", operation,
                    ": ReduceOp.PREMUL_SUM has no factor; make it with cohort::premul_sum(factor)");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

}  // namespace

std::optional<double> check_reducible(const char* operation, const c10d::ReduceOp& op, at::ScalarType dtype) {
  if (op.op_ == Op::SUM) return std::nullopt;
  std::optional<double> factor;
  if (op.op_ == Op::PREMUL_SUM) factor = factor_of(op, operation);
  const bool is_integral = at::isIntegralType(dtype, /*includeBool=*/true);
  TORCH_CHECK_VALUE(!is_bitwise(op) || is_integral, "[cohort] ", operation, ": Cannot use ReduceOp.",
                    reduce_op_name(op), " with non-integral dtype ", dtype_name(dtype));
  TORCH_CHECK_VALUE(!at::isComplexType(dtype) || op.op_ == Op::AVG || op.op_ == Op::PREMUL_SUM, "[cohort] ", operation,
                    " does not support ReduceOp.", reduce_op_name(op), " on complex tensors, got ", dtype_name(dtype));
  TORCH_CHECK_VALUE(dtype != at::kBool || (op.op_ != Op::AVG && op.op_ != Op::PREMUL_SUM), "[cohort] ", operation,
                    " does not support ReduceOp.", reduce_op_name(op), " on bool tensors");
  TORCH_CHECK_VALUE(op.op_ != Op::UNUSED, "[cohort] ", operation, " was given no ReduceOp");
  TORCH_CHECK_VALUE(!factor || !is_integral || std::trunc(*factor) == *factor, "[cohort] ", operation,
                    ": ReduceOp.PREMUL_SUM on ", dtype_name(dtype), " needs a whole factor, got ", factor.value_or(0));
  return factor;
}

}  // namespace cohort::comm
