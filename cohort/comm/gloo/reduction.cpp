#include "cohort/comm/gloo/reduction.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <limits>

#include "cohort/comm/tensors/contiguous_copies.h"
#include "cohort/comm/tensors/reducible.h"

namespace cohort::comm {
namespace {

using Op = c10d::ReduceOp::RedOpType;
constexpr auto kSignBit = std::numeric_limits<int64_t>::min();

// LibTorch cannot divide uint64.
void divide_unsigned(at::Tensor carrier, int world_size) {
  auto host = carrier.cpu();
  auto* const values = reinterpret_cast<uint64_t*>(host.data_ptr<int64_t>());
  for (int64_t i = 0; i < host.numel(); ++i) values[i] /= static_cast<uint64_t>(world_size);
  if (!carrier.is_cpu()) carrier.copy_(host);
}

}  // namespace

Reduction::Reduction(const char* operation, const c10d::ReduceOp& op, at::ScalarType dtype)
    : engine_op_(op), dtype_(dtype), is_complex_(at::isComplexType(dtype)), is_average_(op == Op::AVG) {
  factor_ = check_reducible(operation, op, dtype);
  if (is_complex_) dtype_ = c10::toRealValueType(dtype);
  if (is_average_ || factor_) engine_op_ = Op::SUM;
  // Gloo's sum of bools is a sum of bytes, which may give 2: not a valid bool.
  if (dtype_ == at::kBool && engine_op_ == Op::SUM) engine_op_ = Op::BOR;
  plan_dtypes();
}

void Reduction::plan_dtypes() {
  const bool compares = engine_op_ == Op::MIN || engine_op_ == Op::MAX;
  seen_as_ = carrier_ = dtype_;
  if (dtype_ == at::kShort || dtype_ == at::kUInt16) {
    carrier_ = at::kInt;
  } else if (dtype_ == at::kUInt32) {
    seen_as_ = compares || is_average_ ? dtype_ : at::kInt;
    carrier_ = compares || is_average_ ? at::kLong : at::kInt;
  } else if (dtype_ == at::kUInt64) {
    seen_as_ = carrier_ = at::kLong;
    flips_sign_ = compares;
  } else if (at::isFloat8Type(dtype_)) {
    carrier_ = at::kFloat;
  } else if (is_average_ && (dtype_ == at::kChar || dtype_ == at::kByte)) {
    carrier_ = at::kInt;  // so that the sum does not wrap around
  }
}

Carrier Reduction::encode(const at::Tensor& user, bool may_overwrite) const {
  const at::NoGradGuard no_grad;
  Carrier carrier{user, false};
  if (!is_plain(user) || (!may_overwrite && seen_as_ == carrier_)) carrier = {plain_copy(user), true};
  auto& tensor = carrier.tensor;
  if (is_complex_) tensor = at::view_as_real(tensor);
  if (seen_as_ != dtype_) tensor = tensor.view(seen_as_);
  if (carrier_ != seen_as_) carrier = {tensor.to(carrier_), true};
  if (factor_ && at::isIntegralType(carrier_, /*includeBool=*/false)) {
    tensor.mul_(static_cast<int64_t>(*factor_));
  } else if (factor_) {
    tensor.mul_(*factor_);
  }
  if (flips_sign_) tensor.bitwise_xor_(kSignBit);
  return carrier;
}

at::Tensor Reduction::average(at::Tensor carrier, int world_size) const {
  if (dtype_ == at::kUInt64) {
    divide_unsigned(carrier, world_size);
  } else if (at::isIntegralType(carrier_, /*includeBool=*/false)) {
    carrier.div_(world_size, "trunc");
  } else {
    carrier.div_(world_size);
  }
  return carrier;
}

void Reduction::decode(const at::Tensor& carrier, bool is_copy, at::Tensor user, int world_size) const {
  if (carrier.numel() == 0) return;  // also because view_as_complex checks the offset of empty tensors
  const at::NoGradGuard no_grad;
  auto result = carrier;
  if (is_average_) result = average(result, world_size);
  if (flips_sign_) result.bitwise_xor_(kSignBit);
  if (!is_copy) return;
  if (seen_as_ != dtype_) result = result.view(dtype_);
  if (is_complex_) result = at::view_as_complex(result.view({-1, 2}));
  user.copy_(result.view(user.sizes()));
}

}  // namespace cohort::comm
