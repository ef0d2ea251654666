/// 64-byte vectors with masks, shared by avx512.cpp and avx512_bf16.cpp.
#pragma once

#include <immintrin.h>

#include "cohort/shm/kernels/vectors.h"

namespace cohort::shm {
namespace {

struct Avx512 {
  static constexpr int kBytes = 64;
  using F32 = Vector<float, kBytes>;
  using U16 = Vector<uint16_t, kBytes>;

  COHORT_SHM_INLINE static __mmask64 first_bytes(size_t num_bytes) { return ~uint64_t{0} >> (64 - num_bytes); }

  template <class V>
  COHORT_SHM_INLINE static V load_partial(const void* from, size_t num_bytes) {
    return reinterpret_cast<V>(_mm512_maskz_loadu_epi8(first_bytes(num_bytes), from));
  }
  template <class V>
  COHORT_SHM_INLINE static void store_partial(void* to, V vector, size_t num_bytes) {
    _mm512_mask_storeu_epi8(to, first_bytes(num_bytes), reinterpret_cast<__m512i>(vector));
  }

  COHORT_SHM_INLINE static void widen(U16 from, F32 (&to)[2], Half) {
    const auto halves = reinterpret_cast<__m512i>(from);
    to[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
    to[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
  }
  COHORT_SHM_INLINE static U16 narrow(const F32 (&from)[2], Half) {
    const __m256i low = _mm512_cvtps_ph(one_nan<float>(from[0]), _MM_FROUND_TO_NEAREST_INT);
    const __m256i high = _mm512_cvtps_ph(one_nan<float>(from[1]), _MM_FROUND_TO_NEAREST_INT);
    return reinterpret_cast<U16>(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
  }

  COHORT_SHM_INLINE static void widen(U16 from, F32 (&to)[2], BFloat16) { widen_bfloat16(from, to); }
  COHORT_SHM_INLINE static U16 narrow(const F32 (&from)[2], BFloat16) { return narrow_bfloat16<U16>(from); }
};

}  // namespace
}  // namespace cohort::shm
