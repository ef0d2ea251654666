#include "tests/conformance/values.h"

#include <ATen/ATen.h>

#include <limits>
#include <sstream>
#include <stdexcept>

namespace cohort::test {
namespace {

bool is_whole(at::ScalarType dtype) { return at::isIntegralType(dtype, /*includeBool=*/true); }

bool is_unsigned(at::ScalarType dtype) {
  return dtype == at::kByte || dtype == at::kUInt16 || dtype == at::kUInt32 || dtype == at::kUInt64;
}

// Wide values: int64 for integers (the bits of uint64), float64 for the rest, two per complex number. To the real dtype:
at::Tensor narrow(const at::Tensor& wide, at::ScalarType dtype) {
  if (dtype == at::kUInt64) return wide.view(at::kUInt64);
  if (at::isComplexType(dtype)) return at::view_as_complex(wide.view({wide.numel() / 2, 2})).to(dtype);
  if (at::isFloat8Type(dtype)) return wide.to(at::kFloat).to(dtype);
  return wide.to(dtype);
}

int64_t wide_count(at::ScalarType dtype, int64_t count) { return at::isComplexType(dtype) ? 2 * count : count; }

// (7 i + 3 rank + 5 salt) mod `modulus`
at::Tensor pattern(at::ScalarType dtype, int64_t count, int rank, int salt, int64_t modulus) {
  return at::arange(wide_count(dtype, count), at::kLong).mul_(7).add_(3 * rank + 5 * salt).remainder_(modulus);
}

at::Tensor wide_reducible(at::ScalarType dtype, RedOp op, int64_t count, int rank, int salt) {
  const bool whole = is_whole(dtype);
  auto numbers = pattern(dtype, count, rank, salt, 11);
  if (dtype == at::kBool) return numbers.remainder_(2);
  if (op == RedOp::PRODUCT) {
    numbers.remainder_(2).add_(1);  // powers of two are exact everywhere
    if (!is_unsigned(dtype) && rank % 2 == 1) numbers.neg_();
  } else if (op == RedOp::AVG && !whole) {
    // The ranks' numbers differ by multiples of two, so that the average is whole.
    numbers = pattern(dtype, count, 0, salt, 3).add_(2 * rank);
  } else if (at::isFloat8Type(dtype)) {
    numbers.remainder_(3);
  } else if (is_unsigned(dtype)) {
    // The upper half of the range too, where signed arithmetic would go wrong.
    const int bits = static_cast<int>(c10::elementSize(dtype)) * 8;
    const int64_t largest = bits == 64 ? -1 : (int64_t{1} << bits) - 1;
    if (op != RedOp::AVG) numbers = at::where(numbers.remainder(2) == 1, numbers, largest - numbers);
  } else {
    numbers.sub_(5);
  }
  return whole ? numbers : numbers.to(at::kDouble);
}

at::Tensor combine(const at::Tensor& a, const at::Tensor& b, RedOp op, at::ScalarType dtype) {
  constexpr auto kSignBit = std::numeric_limits<int64_t>::min();
  const bool flips = dtype == at::kUInt64 && (op == RedOp::MIN || op == RedOp::MAX);
  const auto x = flips ? a.bitwise_xor(kSignBit) : a;
  const auto y = flips ? b.bitwise_xor(kSignBit) : b;
  switch (op) {
    case RedOp::PRODUCT:
      return x.mul(y);
    case RedOp::MIN:
      return flips ? at::minimum(x, y).bitwise_xor(kSignBit) : at::minimum(x, y);
    case RedOp::MAX:
      return flips ? at::maximum(x, y).bitwise_xor(kSignBit) : at::maximum(x, y);
    case RedOp::BAND:
      return x.bitwise_and(y);
    case RedOp::BOR:
      return x.bitwise_or(y);
    case RedOp::BXOR:
      return x.bitwise_xor(y);
    default:
      return x.add(y);
  }
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  const auto flat = tensor.is_contiguous() ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
  return flat.as_strided({flat.numel()}, {1}).view(at::kByte);
}

at::Tensor guard_filled(at::ScalarType dtype, int64_t count) {
  const auto size = static_cast<int64_t>(c10::elementSize(dtype));
  return at::full({count * size}, dtype == at::kBool ? 1 : 0x2A, at::kByte).view(dtype);
}

std::string as_text(const at::Tensor& tensor) {
  const auto shown = tensor.flatten().narrow(0, 0, std::min<int64_t>(tensor.numel(), 16));
  std::ostringstream text;
  text << (shown.is_complex() ? at::view_as_real(shown) : shown.to(at::kDouble));
  return text.str();
}

}  // namespace

const std::vector<at::ScalarType>& all_dtypes() {
  static const std::vector<at::ScalarType> dtypes{
      at::kFloat,  at::kDouble,       at::kHalf,          at::kBFloat16,      at::kChar,       at::kByte,
      at::kBool,   at::kShort,        at::kInt,           at::kLong,          at::kUInt16,     at::kUInt32,
      at::kUInt64, at::kComplexFloat, at::kComplexDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2};
  return dtypes;
}

std::vector<RedOp> operations_on(at::ScalarType dtype) {
  if (at::isComplexType(dtype)) return {RedOp::SUM, RedOp::AVG, RedOp::PREMUL_SUM};
  std::vector<RedOp> operations{RedOp::SUM, RedOp::PRODUCT, RedOp::MIN, RedOp::MAX};
  if (is_whole(dtype)) operations.insert(operations.end(), {RedOp::BAND, RedOp::BOR, RedOp::BXOR});
  if (dtype != at::kBool) operations.insert(operations.end(), {RedOp::AVG, RedOp::PREMUL_SUM});
  return operations;
}

int64_t factor_of(int rank) { return 1 + rank % 2; }

c10d::ReduceOp make_op(RedOp op, int rank) {
  if (op != RedOp::PREMUL_SUM) return op;
  c10d::ReduceOp result;
  result.op_ = RedOp::PREMUL_SUM;
  result.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(static_cast<double>(factor_of(rank)));
  return result;
}

at::Tensor values(at::ScalarType dtype, int64_t count, int rank, int salt) {
  auto numbers = pattern(dtype, count, rank, salt, dtype == at::kBool ? 2 : 97);
  return narrow(is_whole(dtype) ? numbers : numbers.to(at::kDouble), dtype);
}

at::Tensor reducible(at::ScalarType dtype, RedOp op, int64_t count, int rank, int salt) {
  return narrow(wide_reducible(dtype, op, count, rank, salt), dtype);
}

at::Tensor reduced(at::ScalarType dtype, RedOp op, int64_t count, int world_size, int salt) {
  at::Tensor total;
  for (int rank = 0; rank < world_size; ++rank) {
    auto wide = wide_reducible(dtype, op, count, rank, salt);
    if (op == RedOp::PREMUL_SUM) wide.mul_(factor_of(rank));
    total = rank == 0 ? wide : combine(total, wide, op, dtype);
  }
  if (op == RedOp::AVG) total = is_whole(dtype) ? at::div(total, world_size, "trunc") : at::div(total, world_size);
  return narrow(total, dtype);
}

std::string name_of(Layout layout) {
  if (layout == Layout::kContiguous) return "contiguous";
  return layout == Layout::kStrided ? "strided" : "transposed";
}

Placed place_output(at::ScalarType dtype, int64_t count, Layout layout) {
  if (layout == Layout::kStrided || (layout == Layout::kTransposed && count % 2 != 0)) {
    const auto buffer = guard_filled(dtype, 2 * count + 1);
    return {buffer.slice(0, 1, std::nullopt, 2), buffer};
  }
  const auto buffer = guard_filled(dtype, count);
  return {layout == Layout::kTransposed ? buffer.view({count / 2, 2}).t() : buffer, buffer};
}

Placed place(const at::Tensor& flat, Layout layout) {
  auto placed = place_output(flat.scalar_type(), flat.numel(), layout);
  placed.tensor.copy_(flat.view(placed.tensor.sizes()));
  return placed;
}

void expect_placed(const Placed& actual, const at::Tensor& expected, const std::string& what) {
  Placed wanted{actual.tensor, actual.buffer};
  wanted.buffer = guard_filled(expected.scalar_type(), actual.buffer.numel());
  wanted.tensor =
      wanted.buffer.as_strided(actual.tensor.sizes(), actual.tensor.strides(), actual.tensor.storage_offset());
  wanted.tensor.copy_(expected.view(wanted.tensor.sizes()));
  if (at::equal(bytes_of(actual.buffer), bytes_of(wanted.buffer))) return;
  if (at::equal(bytes_of(actual.tensor), bytes_of(wanted.tensor))) {
    throw std::runtime_error(what + ": bytes beside the tensor were overwritten");
  }
  throw std::runtime_error(what + ": expected " + as_text(wanted.tensor) + ", got " + as_text(actual.tensor));
}

}  // namespace cohort::test
