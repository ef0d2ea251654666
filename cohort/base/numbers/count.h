/// Sums, products and quotients of counts that users choose. Such a count may be as large as the type allows ("no limit").
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace cohort::base {

/// Returns a / b, rounded up. Requires a >= 0 and b > 0.
template <std::integral T>
constexpr T divide_up(T a, T b) {
  return static_cast<T>(a / b + (a % b != 0 ? 1 : 0));
}

/// Returns a + b, or the largest number if the sum does not fit. Requires numbers that are not negative.
template <std::integral T = int64_t>
constexpr T add_capped(std::type_identity_t<T> a, std::type_identity_t<T> b) {
  T sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<T>::max() : sum;
}

/// Returns a * b, or the largest number if the product does not fit. Requires numbers that are not negative.
constexpr int64_t multiply_capped(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace cohort::base
