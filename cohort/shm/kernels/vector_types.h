/// Vectors of any number type, loads and stores of complete and short ones, and conversions without special instructions. Only
/// for the sources of table.h.
#pragma once

#include "cohort/shm/kernels/operations.h"

namespace cohort::shm {
namespace {

template <class T, int kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};
template <class T, int kBytes>
using Vector = typename VectorOf<T, kBytes>::Type;

template <class V>
COHORT_SHM_INLINE V load(const void* from) {
  V vector;
  __builtin_memcpy(&vector, from, sizeof vector);
  return vector;
}
template <class V>
COHORT_SHM_INLINE void store(void* to, V vector) {
  __builtin_memcpy(to, &vector, sizeof vector);
}

/// Loads a vector from fewer than sizeof(V) bytes, as their first and last piece, which may overlap. Elements in the overlap are
/// combined twice, with the same result. Does not go through memory, which would stall.
template <class Piece, class V>
COHORT_SHM_INLINE V load_ends(const void* from, size_t num_bytes) {
  Vector<Piece, sizeof(V)> ends{};
  ends[0] = load<Piece>(from);
  ends[1] = load<Piece>(static_cast<const char*>(from) + num_bytes - sizeof(Piece));
  return reinterpret_cast<V>(ends);
}
template <class Piece, class V>
COHORT_SHM_INLINE void store_ends(void* to, V vector, size_t num_bytes) {
  const auto ends = reinterpret_cast<Vector<Piece, sizeof(V)>>(vector);
  store<Piece>(to, ends[0]);
  store<Piece>(static_cast<char*>(to) + num_bytes - sizeof(Piece), ends[1]);
}

/// Requires 1 <= num_bytes < 16.
template <class V>
COHORT_SHM_INLINE V load_few(const void* from, size_t num_bytes) {
  if (num_bytes >= 8) return load_ends<uint64_t, V>(from, num_bytes);
  if (num_bytes >= 4) return load_ends<uint32_t, V>(from, num_bytes);
  if (num_bytes >= 2) return load_ends<uint16_t, V>(from, num_bytes);
  return load_ends<uint8_t, V>(from, num_bytes);
}
template <class V>
COHORT_SHM_INLINE void store_few(void* to, V vector, size_t num_bytes) {
  if (num_bytes >= 8) return store_ends<uint64_t>(to, vector, num_bytes);
  if (num_bytes >= 4) return store_ends<uint32_t>(to, vector, num_bytes);
  if (num_bytes >= 2) return store_ends<uint16_t>(to, vector, num_bytes);
  store_ends<uint8_t>(to, vector, num_bytes);
}

// Widens bfloat16 without special instructions: numbers with even index into the first vector, with odd index into the second.
template <class U16, class F32>
COHORT_SHM_INLINE void widen_bfloat16(U16 from, F32 (&to)[2]) {
  using U32 = Vector<uint32_t, sizeof(F32)>;
  const U32 pairs = reinterpret_cast<U32>(from);
  to[0] = reinterpret_cast<F32>(pairs << 16);
  to[1] = reinterpret_cast<F32>(pairs & 0xffff0000u);
}
template <class U16, class F32>
COHORT_SHM_INLINE U16 narrow_bfloat16(const F32 (&from)[2]) {
  using U32 = Vector<uint32_t, sizeof(F32)>;
  const U32 even = rounded_to_bfloat16(reinterpret_cast<U32>(one_nan<float>(from[0]))) >> 16;
  const U32 odd = rounded_to_bfloat16(reinterpret_cast<U32>(one_nan<float>(from[1]))) & 0xffff0000u;
  return reinterpret_cast<U16>(even | odd);
}

/// Converts integers of up to 32 bits to kParts vectors of double, and back.
template <class Raw, class F64, int kParts>
COHORT_SHM_INLINE void widen_integers(Raw from, F64 (&to)[kParts]) {
  using Small = Vector<typename std::remove_cvref_t<decltype(from[0])>, sizeof(Raw) / kParts>;
  Small pieces[kParts];
  __builtin_memcpy(pieces, &from, sizeof from);
  for (int part = 0; part < kParts; ++part) {
    if constexpr (sizeof(from[0]) < 4) {
      to[part] = __builtin_convertvector(__builtin_convertvector(pieces[part], Vector<int32_t, sizeof(F64) / 2>), F64);
    } else {
      to[part] = __builtin_convertvector(pieces[part], F64);
    }
  }
}
template <class Raw, class F64, int kParts>
COHORT_SHM_INLINE Raw narrow_integers(const F64 (&from)[kParts]) {
  using Number = std::remove_cvref_t<decltype(Raw{}[0])>;
  using Small = Vector<Number, sizeof(Raw) / kParts>;
  Small pieces[kParts];
  for (int part = 0; part < kParts; ++part) {
    if constexpr (sizeof(Number) < 4) {
      pieces[part] =
          __builtin_convertvector(__builtin_convertvector(from[part], Vector<int32_t, sizeof(F64) / 2>), Small);
    } else {
      pieces[part] = __builtin_convertvector(from[part], Small);
    }
  }
  Raw to;
  __builtin_memcpy(&to, pieces, sizeof to);
  return to;
}

}  // namespace
}  // namespace cohort::shm
