/// Sums, products and quotients of counts that users choose, which may be as large as the type allows ("no limit").
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace cohort::base {

/// a / b, rounded up. Requires a >= 0 and b > 0.
template <std::integral T>
constexpr T divide_up(T a, T b) {
  return static_cast<T>(a / b + (a % b != 0 ? 1 : 0));
}

/// a + b, or the largest number where that does not fit. Requires numbers that are not negative.
template <std::integral T = int64_t>
constexpr T add_capped(std::type_identity_t<T> a, std::type_identity_t<T> b) {
  T sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<T>::max() : sum;
}

/// a * b, or the largest number where that does not fit. Requires numbers that are not negative.
constexpr int64_t multiply_capped(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace cohort::base
