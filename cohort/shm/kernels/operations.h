/// The arithmetic of each operation, and of the 16-bit floats. Only for the sources of table.h.
///
/// T is a number or a vector of numbers (GCC's vector extension), on which operators work lane by lane.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cohort/shm/kernels/table.h"

#define COHORT_SHM_INLINE [[gnu::always_inline]] inline

namespace cohort::shm {
namespace {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

template <class T>
constexpr bool kIsVector = !std::is_arithmetic_v<T>;

template <class T, bool = kIsVector<T>>
struct SignedTwin {
  using Type = std::make_signed_t<T>;
};
template <class T>
struct SignedTwin<T, true> {
  using Type = decltype(T{} < T{});  // the type of comparisons of vectors
};
template <class T>
using SignedOf = typename SignedTwin<T>::Type;

template <class To, class From>
COHORT_SHM_INLINE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

struct Sum {
  template <class T>
  COHORT_SHM_INLINE static T combine(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Product {
  template <class T>
  COHORT_SHM_INLINE static T combine(T a, T b) {
    if constexpr (std::is_unsigned_v<T>) {
      return static_cast<T>(1u * a * b);  // 16-bit numbers would be promoted to int, which must not overflow
    } else {
      return a * b;
    }
  }
};
struct Min {
  template <class T>
  COHORT_SHM_INLINE static T combine(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  COHORT_SHM_INLINE static T combine(T a, T b) {
    return a < b ? b : a;
  }
};
struct And {
  template <class T>
  COHORT_SHM_INLINE static T combine(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  COHORT_SHM_INLINE static T combine(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  COHORT_SHM_INLINE static T combine(T a, T b) {
    return a ^ b;
  }
};

// 16-bit floats are compared as integers: twice as many fit a vector, and the result keeps its bits.
template <int16_t kInfinity>
struct SmallFloatOrder {
  /// Returns a key that increases with the float's value; both zeros are 0; `for_nan` is the key of every NaN.
  template <class T>
  COHORT_SHM_INLINE static T key(T x, int16_t for_nan) {
    const T sign = static_cast<T>(x >> 15);
    const T magnitude = static_cast<T>(x & static_cast<int16_t>(0x7fff));
    const T value = static_cast<T>((magnitude ^ sign) - sign);
    return magnitude > kInfinity ? static_cast<T>(T{} + for_nan) : value;
  }
  /// Returns x < y; false if one is a NaN.
  template <class T>
  COHORT_SHM_INLINE static auto less(T x, T y) {
    return key(x, INT16_MAX) < key(y, INT16_MIN);
  }
};
template <int16_t kInfinity>
struct SmallFloatMin {
  template <class T>
  COHORT_SHM_INLINE static T combine(T a, T b) {
    return SmallFloatOrder<kInfinity>::less(b, a) ? b : a;
  }
};
template <int16_t kInfinity>
struct SmallFloatMax {
  template <class T>
  COHORT_SHM_INLINE static T combine(T a, T b) {
    return SmallFloatOrder<kInfinity>::less(a, b) ? b : a;
  }
};

/// Divides toward zero. T is a 64-bit integer or a vector of them.
template <class T>
COHORT_SHM_INLINE T quotient(T x, int divisor) {
  const int shift = __builtin_ctz(static_cast<unsigned>(divisor));
  const bool is_power_of_two = (divisor & (divisor - 1)) == 0;
  if constexpr (std::is_same_v<T, SignedOf<T>>) {
    if (is_power_of_two) return (x + ((x >> 63) & int64_t{divisor - 1})) >> shift;
    return x / int64_t{divisor};
  } else {
    return is_power_of_two ? x >> shift : x / static_cast<uint64_t>(divisor);
  }
}

/// Replaces NaNs with the positive quiet one without payload, because the compiler decides which of two NaNs an addition returns.
template <class Float, class T>
COHORT_SHM_INLINE T one_nan(T x) {
  constexpr Float kNan =
      sizeof(Float) == 4 ? static_cast<Float>(__builtin_nanf("")) : static_cast<Float>(__builtin_nan(""));
  return x == x ? x : T{} + kNan;
}

/// Exact, also for subnormal numbers.
COHORT_SHM_INLINE float float_from_half(uint16_t half) {
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  const uint32_t exponent = magnitude & 0x0f800000;
  const uint32_t normal = magnitude + (112u << 23);
  const uint32_t infinite = magnitude + (224u << 23);
  // Computes 2^-14 + x as a normal float, and subtracts 2^-14: the result is x, normalized by the subtraction.
  const uint32_t below = bits_as<uint32_t>(bits_as<float>(magnitude + (113u << 23)) - bits_as<float>(113u << 23));
  const uint32_t value = exponent == 0 ? below : (exponent == 0x0f800000 ? infinite : normal);
  return bits_as<float>(value | (static_cast<uint32_t>(half & 0x8000) << 16));
}

/// Rounds to nearest, ties to even.
COHORT_SHM_INLINE uint16_t half_from_float(float x) {
  const uint32_t bits = bits_as<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  // Adding 0.5 leaves units of 2^-24, the units of halves below 2^-14, and rounds to them.
  const uint32_t below = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000;
  const uint32_t normal = (magnitude + 0xc8000fff + ((magnitude >> 13) & 1)) >> 13;
  const uint32_t value = magnitude >= 0x47800000 ? 0x7c00 : (magnitude < 0x38800000 ? below : normal);
  return static_cast<uint16_t>(magnitude > 0x7f800000 ? 0x7e00 : value | ((bits >> 16) & 0x8000));
}

/// The bits of the bfloat16 are in the upper half. T is uint32_t or a vector of it. Only for one_nan().
template <class T>
COHORT_SHM_INLINE T rounded_to_bfloat16(T bits) {
  return bits + (((bits >> 16) & 1u) + 0x7fffu);
}

template <class Wide, class Element>
COHORT_SHM_INLINE Wide widened(Element x) {
  if constexpr (std::is_same_v<Element, Half>) {
    return float_from_half(x.bits);
  } else if constexpr (std::is_same_v<Element, BFloat16>) {
    return bits_as<float>(static_cast<uint32_t>(x.bits) << 16);
  } else {
    return static_cast<Wide>(x);
  }
}

template <class Element, class Wide>
COHORT_SHM_INLINE Element narrowed(Wide x) {
  if constexpr (std::is_same_v<Element, Half>) {
    return {half_from_float(x)};
  } else if constexpr (std::is_same_v<Element, BFloat16>) {
    return {static_cast<uint16_t>(rounded_to_bfloat16(bits_as<uint32_t>(one_nan<float>(x))) >> 16)};
  } else {
    return static_cast<Element>(x);
  }
}

}  // namespace
}  // namespace cohort::shm
