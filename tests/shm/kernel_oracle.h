/// What reductions must give, written without a look at the kernels: 16-bit floats by arithmetic on doubles, integers in
/// 128 bits. Elements are passed as their bits in a uint64_t.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cohort/shm/kernels/kernels.h"

namespace cohort::shm::oracle {

/// A binary float format; numbers are exact in double.
struct Format {
  int mantissa_bits;
  int exponent_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint64_t infinity() const { return ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits; }
  uint64_t sign() const { return uint64_t{1} << (mantissa_bits + exponent_bits); }

  bool is_nan(uint64_t bits) const { return (bits & ~sign()) > infinity(); }

  double value(uint64_t bits) const {
    const double direction = bits & sign() ? -1 : 1;
    const uint64_t magnitude = bits & ~sign();
    if (magnitude > infinity()) return std::numeric_limits<double>::quiet_NaN();
    if (magnitude == infinity()) return direction * std::numeric_limits<double>::infinity();
    const auto exponent = static_cast<int>(magnitude >> mantissa_bits);
    const auto mantissa = static_cast<double>(magnitude & ((uint64_t{1} << mantissa_bits) - 1));
    const double unit = std::ldexp(1.0, (exponent == 0 ? 1 : exponent) - bias() - mantissa_bits);
    return direction * unit * (exponent == 0 ? mantissa : mantissa + std::ldexp(1.0, mantissa_bits));
  }

  /// To nearest, ties to even; NaN: the positive quiet one.
  uint64_t bits(double x) const {
    if (std::isnan(x)) return infinity() | (uint64_t{1} << (mantissa_bits - 1));
    const uint64_t sign_bit = std::signbit(x) ? sign() : 0;
    const double size = std::fabs(x);
    if (std::isinf(size)) return sign_bit | infinity();
    if (size == 0) return sign_bit;
    const int exponent = std::max(std::ilogb(size), 1 - bias());
    // In units of the last place; may reach the next power of two, which carries into the exponent by itself.
    const auto units = static_cast<uint64_t>(std::nearbyint(std::ldexp(size, mantissa_bits - exponent)));
    const uint64_t result = units + (static_cast<uint64_t>(exponent + bias() - 1) << mantissa_bits);
    return sign_bit | std::min(result, infinity());
  }
};

constexpr Format kHalfFormat{10, 5};
constexpr Format kBFloat16Format{7, 8};

template <class Float>
Float float_of(DType dtype, uint64_t bits) {
  if (dtype == DType::kFloat16) return static_cast<Float>(kHalfFormat.value(bits));
  if (dtype == DType::kBFloat16) return static_cast<Float>(kBFloat16Format.value(bits));
  Float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint64_t bits_of(DType dtype, float value) {
  if (dtype == DType::kFloat16) return kHalfFormat.bits(value);
  if (dtype == DType::kBFloat16) return kBFloat16Format.bits(value);
  if (std::isnan(value)) return 0x7fc00000;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline uint64_t bits_of(DType, double value) {
  if (std::isnan(value)) return 0x7ff8000000000000;
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

template <class Float>
uint64_t reduce_floats(DType dtype, ReduceOp op, const std::vector<uint64_t>& elements, const double* factors) {
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
    uint64_t best = elements[0];
    for (const uint64_t element : elements) {
      const Float a = float_of<Float>(dtype, best), b = float_of<Float>(dtype, element);
      if (op == ReduceOp::kMin ? b < a : a < b) best = element;
    }
    return best;
  }
  Float sum = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    Float weight = 1;
    if (op == ReduceOp::kAvg) weight = static_cast<Float>(1) / static_cast<Float>(elements.size());
    if (op == ReduceOp::kPremulSum) weight = static_cast<Float>(factors[i]);
    // volatile: the product is rounded before it is added.
    volatile Float term = float_of<Float>(dtype, elements[i]) * weight;
    if (i == 0) {
      sum = term;
    } else {
      sum = op == ReduceOp::kProduct ? sum * term : sum + term;
    }
  }
  return bits_of(dtype, sum);
}

using Wide = __int128;

/// The number that an integer's bits stand for.
inline Wide number_of(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::kInt8:
      return static_cast<int8_t>(bits);
    case DType::kInt16:
      return static_cast<int16_t>(bits);
    case DType::kInt32:
      return static_cast<int32_t>(bits);
    case DType::kInt64:
      return static_cast<int64_t>(bits);
    default:
      return bits;
  }
}

inline Wide truncated(double factor) {
  if (std::isnan(factor)) return 0;
  const double limit = std::ldexp(1.0, 63);
  if (factor >= limit) return std::numeric_limits<int64_t>::max();
  if (factor <= -limit) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(std::trunc(factor));
}

inline uint64_t reduce_integers(DType dtype, ReduceOp op, const std::vector<uint64_t>& elements,
                                const double* factors) {
  uint64_t sum = 0, product = 1, all = ~uint64_t{0}, any = 0, odd = 0, weighted = 0;
  Wide least = number_of(dtype, elements[0]), largest = least;
  for (size_t i = 0; i < elements.size(); ++i) {
    const Wide number = number_of(dtype, elements[i]);
    const auto bits = static_cast<uint64_t>(number);
    sum += bits;
    product *= bits;
    all &= bits;
    any |= bits;
    odd ^= bits;
    if (op == ReduceOp::kPremulSum) weighted += bits * static_cast<uint64_t>(truncated(factors[i]));
    least = std::min(least, number);
    largest = std::max(largest, number);
  }
  const auto count = static_cast<Wide>(elements.size());
  // The sum is that of 64 bits, signed but for uint64.
  const Wide sum_number = dtype == DType::kUInt64 ? Wide{sum} : Wide{static_cast<int64_t>(sum)};
  switch (op) {
    case ReduceOp::kSum:
      return sum;
    case ReduceOp::kAvg:
      return static_cast<uint64_t>(sum_number / count);
    case ReduceOp::kProduct:
      return product;
    case ReduceOp::kMin:
      return static_cast<uint64_t>(least);
    case ReduceOp::kMax:
      return static_cast<uint64_t>(largest);
    case ReduceOp::kBand:
      return all;
    case ReduceOp::kBor:
      return any;
    case ReduceOp::kBxor:
      return odd;
    default:
      return weighted;
  }
}

/// One element of each rank, in rank order -> the result's bits.
inline uint64_t reduce(DType dtype, ReduceOp op, const std::vector<uint64_t>& elements, const double* factors) {
  if (dtype == DType::kFloat64) return reduce_floats<double>(dtype, op, elements, factors);
  if (is_float(dtype)) return reduce_floats<float>(dtype, op, elements, factors);
  if (dtype != DType::kBool) {
    const int num_bits = static_cast<int>(size_of(dtype)) * 8;
    return reduce_integers(dtype, op, elements, factors) & (~uint64_t{0} >> (64 - num_bits));
  }
  size_t num_true = 0;
  for (const uint64_t element : elements) num_true += element;
  if (op == ReduceOp::kBxor) return num_true % 2;
  const bool is_and = op == ReduceOp::kProduct || op == ReduceOp::kMin || op == ReduceOp::kBand;
  return is_and ? num_true == elements.size() : num_true != 0;
}

}  // namespace cohort::shm::oracle
