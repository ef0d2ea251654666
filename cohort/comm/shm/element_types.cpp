#include "cohort/comm/shm/element_types.h"

#include <c10/util/Exception.h>

#include "cohort/comm/tensors/operation_text.h"
#include "cohort/comm/tensors/reducible.h"

namespace cohort::comm {
namespace {

using shm::DType;

shm::ReduceOp engine_op(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return shm::ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return shm::ReduceOp::kAvg;
    case c10d::ReduceOp::PRODUCT:
      return shm::ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return shm::ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return shm::ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return shm::ReduceOp::kBand;
    case c10d::ReduceOp::BOR:
      return shm::ReduceOp::kBor;
    case c10d::ReduceOp::BXOR:
      return shm::ReduceOp::kBxor;
    case c10d::ReduceOp::PREMUL_SUM:
      return shm::ReduceOp::kPremulSum;
    default:
      return shm::ReduceOp::kNone;
  }
}

}  // namespace

ElementType element_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return {DType::kBool, 1};
    case at::kChar:
      return {DType::kInt8, 1};
    case at::kByte:
      return {DType::kUInt8, 1};
    case at::kShort:
      return {DType::kInt16, 1};
    case at::kUInt16:
      return {DType::kUInt16, 1};
    case at::kInt:
      return {DType::kInt32, 1};
    case at::kUInt32:
      return {DType::kUInt32, 1};
    case at::kLong:
      return {DType::kInt64, 1};
    case at::kUInt64:
      return {DType::kUInt64, 1};
    case at::kHalf:
      return {DType::kFloat16, 1};
    case at::kBFloat16:
      return {DType::kBFloat16, 1};
    case at::kFloat:
      return {DType::kFloat32, 1};
    case at::kDouble:
      return {DType::kFloat64, 1};
    case at::kComplexHalf:
      return {DType::kFloat16, 2};
    case at::kComplexFloat:
      return {DType::kFloat32, 2};
    case at::kComplexDouble:
      return {DType::kFloat64, 2};
    default:
      return {DType::kBytes, c10::elementSize(dtype)};
  }
}

bool is_reduced_as_float(at::ScalarType dtype) { return at::isFloat8Type(dtype); }

shm::Reduction engine_reduction(const char* operation, const c10d::ReduceOp& op, at::ScalarType dtype) {
  const auto factor = check_reducible(operation, op, dtype);
  const auto type = is_reduced_as_float(dtype) ? DType::kFloat32 : element_type(dtype).dtype;
  const auto engine = engine_op(op.op_);
  TORCH_CHECK_VALUE(shm::can_reduce(type, engine), "[cohort] ", operation, " does not support ReduceOp.",
                    reduce_op_name(op), " on ", dtype_name(dtype), " tensors");
  return {engine, factor.value_or(1.0)};
}

}  // namespace cohort::comm
