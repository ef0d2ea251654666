/// The kernels of each (dtype, op), and the table of all of them. Only for the sources of table.h.
///
/// A Recipe defines how elements are widened, weighted, combined, finished and narrowed.
#pragma once

#include "cohort/shm/kernels/operations.h"

namespace cohort::shm {
namespace {

enum class Weight { kNone, kEqual, kFactor };
/// kDivideSigned: Wide is unsigned, so that sums wrap around, but its values are signed numbers.
enum class Finish { kNone, kOneNan, kDivide, kDivideSigned };

/// Wide is the type of numbers in which elements are combined.
template <class ElementType, class WideType, class Operation, Weight kWeightKind = Weight::kNone,
          Finish kFinishKind = Finish::kNone>
struct Recipe {
  using Element = ElementType;
  using Wide = WideType;
  using Op = Operation;
  static constexpr Weight kWeight = kWeightKind;
  static constexpr Finish kFinish = kFinishKind;
};

COHORT_SHM_INLINE int64_t truncated(double x) {
  if (x != x) return 0;
  if (x >= 0x1p63) return INT64_MAX;
  return x < -0x1p63 ? INT64_MIN : static_cast<int64_t>(x);
}

/// Returns the factor of input `index`.
template <class R>
COHORT_SHM_INLINE typename R::Wide weight_of(const double* factors, int num_inputs, int index) {
  using Wide = typename R::Wide;
  if constexpr (R::kWeight == Weight::kNone) {
    return Wide{1};
  } else if constexpr (R::kWeight == Weight::kEqual) {
    return Wide{1} / static_cast<Wide>(num_inputs);
  } else if constexpr (std::is_floating_point_v<Wide>) {
    return static_cast<Wide>(factors[index]);
  } else {
    return static_cast<Wide>(truncated(factors[index]));
  }
}

template <class R, class T>
COHORT_SHM_INLINE T weigh(T x, typename R::Wide weight) {
  if constexpr (R::kWeight == Weight::kNone) {
    return x;
  } else if constexpr (kIsVector<T>) {
    return x * weight;
  } else {
    return Product::combine(x, weight);
  }
}

template <class R, class T>
COHORT_SHM_INLINE T finish(T x, int num_inputs) {
  using Wide = typename R::Wide;
  if constexpr (R::kFinish == Finish::kOneNan) {
    return one_nan<Wide>(x);
  } else if constexpr (R::kFinish == Finish::kDivide && std::is_floating_point_v<Wide>) {
    return x / static_cast<Wide>(num_inputs);
  } else if constexpr (R::kFinish == Finish::kDivide) {
    return quotient(x, num_inputs);
  } else if constexpr (R::kFinish == Finish::kDivideSigned) {
    return bits_as<T>(quotient(bits_as<SignedOf<T>>(x), num_inputs));
  } else {
    return x;
  }
}

/// Combines one element of every input.
template <class R>
COHORT_SHM_INLINE typename R::Element combined_at(const void* const* inputs, const double* factors, int num_inputs,
                                                  size_t at) {
  using Element = typename R::Element;
  using Wide = typename R::Wide;
  const auto term = [=](int index) __attribute__((always_inline)) {
    const Wide x = widened<Wide>(static_cast<const Element*>(inputs[index])[at]);
    return weigh<R>(x, weight_of<R>(factors, num_inputs, index));
  };
  Wide value = term(0);
  for (int index = 1; index < num_inputs; ++index) value = R::Op::combine(value, term(index));
  return narrowed<Element>(finish<R>(value, num_inputs));
}

using Row = ReduceKernel[kNumReduceOps];

constexpr void set(Row& row, ReduceOp op, ReduceKernel kernel) { row[static_cast<int>(op)] = kernel; }

/// Loop<Recipe>::run is a ReduceKernel. Bits is the unsigned integer as wide as Number; its sums wrap around.
template <template <class> class Loop, class Number, class Bits>
constexpr void fill_integers(Row& row) {
  set(row, ReduceOp::kSum, Loop<Recipe<Bits, Bits, Sum>>::run);
  set(row, ReduceOp::kProduct, Loop<Recipe<Bits, Bits, Product>>::run);
  set(row, ReduceOp::kMin, Loop<Recipe<Number, Number, Min>>::run);
  set(row, ReduceOp::kMax, Loop<Recipe<Number, Number, Max>>::run);
  set(row, ReduceOp::kBand, Loop<Recipe<Bits, Bits, And>>::run);
  set(row, ReduceOp::kBor, Loop<Recipe<Bits, Bits, Or>>::run);
  set(row, ReduceOp::kBxor, Loop<Recipe<Bits, Bits, Xor>>::run);
  set(row, ReduceOp::kPremulSum, Loop<Recipe<Bits, Bits, Sum, Weight::kFactor>>::run);
  if constexpr (sizeof(Number) < 8) {
    set(row, ReduceOp::kAvg, Loop<Recipe<Number, double, Sum, Weight::kNone, Finish::kDivide>>::run);
  } else {
    constexpr Finish kFinish = std::is_signed_v<Number> ? Finish::kDivideSigned : Finish::kDivide;
    set(row, ReduceOp::kAvg, Loop<Recipe<Bits, Bits, Sum, Weight::kNone, kFinish>>::run);
  }
}

template <template <class> class Loop>
constexpr void fill_bool(Row& row) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kBor}) {
    set(row, op, Loop<Recipe<uint8_t, uint8_t, Or>>::run);
  }
  for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kBand}) {
    set(row, op, Loop<Recipe<uint8_t, uint8_t, And>>::run);
  }
  set(row, ReduceOp::kBxor, Loop<Recipe<uint8_t, uint8_t, Xor>>::run);
}

/// Smallest and Largest are recipes for MIN and MAX.
template <template <class> class Loop, class Element, class Wide, class Smallest, class Largest>
constexpr void fill_floats(Row& row) {
  constexpr Finish kFinish =
      std::is_same_v<Element, Wide> ? Finish::kOneNan : Finish::kNone;  // otherwise narrowing does it
  set(row, ReduceOp::kSum, Loop<Recipe<Element, Wide, Sum, Weight::kNone, kFinish>>::run);
  set(row, ReduceOp::kAvg, Loop<Recipe<Element, Wide, Sum, Weight::kEqual, kFinish>>::run);
  set(row, ReduceOp::kProduct, Loop<Recipe<Element, Wide, Product, Weight::kNone, kFinish>>::run);
  set(row, ReduceOp::kPremulSum, Loop<Recipe<Element, Wide, Sum, Weight::kFactor, kFinish>>::run);
  set(row, ReduceOp::kMin, Loop<Smallest>::run);
  set(row, ReduceOp::kMax, Loop<Largest>::run);
}

template <int16_t kInfinity>
using SmallFloatMinimum = Recipe<int16_t, int16_t, SmallFloatMin<kInfinity>>;
template <int16_t kInfinity>
using SmallFloatMaximum = Recipe<int16_t, int16_t, SmallFloatMax<kInfinity>>;

template <template <class> class Loop>
constexpr KernelTable make_table() {
  KernelTable table{};
  const auto row = [&table](DType dtype) -> Row& { return table.kernels[static_cast<int>(dtype)]; };
  fill_bool<Loop>(row(DType::kBool));
  fill_integers<Loop, int8_t, uint8_t>(row(DType::kInt8));
  fill_integers<Loop, uint8_t, uint8_t>(row(DType::kUInt8));
  fill_integers<Loop, int16_t, uint16_t>(row(DType::kInt16));
  fill_integers<Loop, uint16_t, uint16_t>(row(DType::kUInt16));
  fill_integers<Loop, int32_t, uint32_t>(row(DType::kInt32));
  fill_integers<Loop, uint32_t, uint32_t>(row(DType::kUInt32));
  fill_integers<Loop, int64_t, uint64_t>(row(DType::kInt64));
  fill_integers<Loop, uint64_t, uint64_t>(row(DType::kUInt64));
  fill_floats<Loop, Half, float, SmallFloatMinimum<0x7c00>, SmallFloatMaximum<0x7c00>>(row(DType::kFloat16));
  fill_floats<Loop, BFloat16, float, SmallFloatMinimum<0x7f80>, SmallFloatMaximum<0x7f80>>(row(DType::kBFloat16));
  fill_floats<Loop, float, float, Recipe<float, float, Min>, Recipe<float, float, Max>>(row(DType::kFloat32));
  fill_floats<Loop, double, double, Recipe<double, double, Min>, Recipe<double, double, Max>>(row(DType::kFloat64));
  return table;
}

}  // namespace
}  // namespace cohort::shm
