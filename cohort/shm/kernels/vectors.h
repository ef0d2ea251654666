/// The loops of the vector instruction sets. Only for the sources of table.h.
///
/// Machine defines a vector, and operations that GCC's vector extension cannot express well:
///
///     static constexpr int kBytes;                                              // of a vector
///     template <class V> static V load_partial(const void*, size_t num_bytes);  // num_bytes < kBytes; in any order ...
///     template <class V> static void store_partial(void*, V, size_t num_bytes); // ... that is undone here
///     static void widen(V<uint16_t>, V<float> (&)[2], Half);                    // any order of the 2 * lanes numbers ...
///     static V<uint16_t> narrow(const V<float> (&)[2], Half);                   // ... that is undone here; one_nan()
///     the same for BFloat16
#pragma once

#include "cohort/shm/kernels/recipes.h"
#include "cohort/shm/kernels/vector_types.h"

namespace cohort::shm {
namespace {

constexpr int kCacheLine = 64;

/// Two inputs, the case of most all_reduces: everything stays in registers.
template <class R>
struct TwoInputs {
  static constexpr bool kAreMany = false;
  const typename R::Element* pointers[2];
  typename R::Wide weights[2];

  COHORT_SHM_INLINE TwoInputs(const void* const* inputs, const double* factors)
      : pointers{static_cast<const typename R::Element*>(inputs[0]),
                 static_cast<const typename R::Element*>(inputs[1])},
        weights{weight_of<R>(factors, 2, 0), weight_of<R>(factors, 2, 1)} {}
  static constexpr int size() { return 2; }
  COHORT_SHM_INLINE const typename R::Element* pointer(int index) const { return pointers[index]; }
  COHORT_SHM_INLINE typename R::Wide weight(int index) const { return weights[index]; }
};

template <class R>
struct ManyInputs {
  static constexpr bool kAreMany = true;
  const void* const* inputs;
  const double* factors;
  int num_inputs;

  COHORT_SHM_INLINE int size() const { return num_inputs; }
  COHORT_SHM_INLINE const typename R::Element* pointer(int index) const {
    return static_cast<const typename R::Element*>(inputs[index]);
  }
  COHORT_SHM_INLINE typename R::Wide weight(int index) const { return weight_of<R>(factors, num_inputs, index); }
};

template <class Machine, class R>
struct VectorLoop {
  using Element = typename R::Element;
  using Wide = typename R::Wide;
  static constexpr bool kIsSmallFloat = std::is_same_v<Element, Half> || std::is_same_v<Element, BFloat16>;
  using Number = std::conditional_t<kIsSmallFloat, uint16_t, Element>;
  using Raw = Vector<Number, Machine::kBytes>;
  using WideVector = Vector<Wide, Machine::kBytes>;
  static constexpr size_t kLanes = Machine::kBytes / sizeof(Element);
  static constexpr int kParts = sizeof(Wide) / sizeof(Element);
  static constexpr int kUnroll = kParts >= 4 ? 1 : 4 / kParts;
  static constexpr size_t kFew = 4;
  static constexpr size_t kLong = 16 * kLanes;
  static constexpr size_t kAhead = 1024;  // bytes

  COHORT_SHM_INLINE static void widen(Raw raw, WideVector (&parts)[kParts]) {
    if constexpr (kIsSmallFloat) {
      Machine::widen(raw, parts, Element{});
    } else if constexpr (kParts == 1) {
      parts[0] = reinterpret_cast<WideVector>(raw);
    } else {
      widen_integers(raw, parts);
    }
  }

  COHORT_SHM_INLINE static Raw narrow(const WideVector (&parts)[kParts]) {
    if constexpr (kIsSmallFloat) {
      return Machine::narrow(parts, Element{});
    } else if constexpr (kParts == 1) {
      return reinterpret_cast<Raw>(parts[0]);
    } else {
      return narrow_integers<Raw>(parts);
    }
  }

  /// Reads kRaws vectors of one input's elements, widened and weighted. load_raw(pointer) returns a vector of elements.
  template <int kRaws, class Inputs, class Load>
  COHORT_SHM_INLINE static void read(const Inputs& inputs, int index, size_t begin, WideVector (&terms)[kRaws][kParts],
                                     Load load_raw) {
    const Element* from = inputs.pointer(index) + begin;
    const Wide weight = inputs.weight(index);
#pragma GCC unroll 8
    for (int raw = 0; raw < kRaws; ++raw) {
      // Processors prefetch two streams by themselves, but not eight, and wide elements leave few loads in flight.
      if (Inputs::kAreMany && kRaws > 1 && raw * Machine::kBytes % kCacheLine == 0) {
        __builtin_prefetch(reinterpret_cast<const char*>(from + raw * kLanes) + kAhead);
      }
      widen(load_raw(from + raw * kLanes), terms[raw]);
#pragma GCC unroll 8
      for (int part = 0; part < kParts; ++part) terms[raw][part] = weigh<R>(terms[raw][part], weight);
    }
  }

  /// Computes kRaws vectors of results from `begin` on.
  template <int kRaws, class Inputs, class Load>
  COHORT_SHM_INLINE static void combine(const Inputs& inputs, size_t begin, Raw (&results)[kRaws], Load load_raw) {
    WideVector sums[kRaws][kParts];
    read(inputs, 0, begin, sums, load_raw);
    for (int index = 1; index < inputs.size(); ++index) {
      WideVector terms[kRaws][kParts];
      read(inputs, index, begin, terms, load_raw);
#pragma GCC unroll 8
      for (int raw = 0; raw < kRaws; ++raw) {
#pragma GCC unroll 8
        for (int part = 0; part < kParts; ++part) {
          sums[raw][part] = R::Op::combine(sums[raw][part], terms[raw][part]);
        }
      }
    }
#pragma GCC unroll 8
    for (int raw = 0; raw < kRaws; ++raw) {
#pragma GCC unroll 8
      for (int part = 0; part < kParts; ++part) sums[raw][part] = finish<R>(sums[raw][part], inputs.size());
      results[raw] = narrow(sums[raw]);
    }
  }

  template <class Inputs>
  COHORT_SHM_INLINE static Raw combine_one(const Inputs& inputs, size_t begin) {
    Raw result[1];
    combine(
        inputs, begin, result, [](const Element* from) __attribute__((always_inline)) { return load<Raw>(from); });
    return result[0];
  }

  /// Requires count >= kLanes. Elements that do not fill a vector are combined by vectors that overlap their neighbors. These are
  /// computed before anything is written, because `out` may be an input.
  template <class Inputs>
  COHORT_SHM_INLINE static void combine_many(Element* out, const Inputs& inputs, size_t count) {
    size_t i = 0;
    // Stores that cross cache lines cost more than loads that do.
    if (count >= kLong) i = (-reinterpret_cast<uintptr_t>(out) % Machine::kBytes) / sizeof(Element);
    const bool has_head = i != 0;
    const bool has_tail = (count - i) % kLanes != 0;
    Raw head{}, tail{};
    if (has_head) head = combine_one(inputs, 0);
    if (has_tail) tail = combine_one(inputs, count - kLanes);
    for (; i + kUnroll * kLanes <= count; i += kUnroll * kLanes) {
      Raw results[kUnroll];
      combine(
          inputs, i, results, [](const Element* from) __attribute__((always_inline)) { return load<Raw>(from); });
#pragma GCC unroll 8
      for (int raw = 0; raw < kUnroll; ++raw) store(out + i + raw * kLanes, results[raw]);
    }
    for (; i + kLanes <= count; i += kLanes) store(out + i, combine_one(inputs, i));
    if (has_head) store(out, head);
    if (has_tail) store(out + count - kLanes, tail);
  }

  static void run(void* out, const void* const* inputs, const double* factors, int num_inputs, size_t count) {
    Element* output = static_cast<Element*>(out);
    const ManyInputs<R> many{inputs, factors, num_inputs};
    if (count >= kLanes && num_inputs == 2) {
      combine_many(output, TwoInputs<R>(inputs, factors), count);
    } else if (count >= kLanes) {
      combine_many(output, many, count);
    } else if (count > kFew) {
      const size_t num_bytes = count * sizeof(Element);
      Raw result[1];
      combine(
          many, 0, result, [num_bytes](const Element* from) __attribute__((always_inline)) {
            return Machine::template load_partial<Raw>(from, num_bytes);
          });
      Machine::store_partial(output, result[0], num_bytes);
    } else {
      for (size_t i = 0; i < count; ++i) output[i] = combined_at<R>(inputs, factors, num_inputs, i);
    }
  }
};

}  // namespace
}  // namespace cohort::shm
