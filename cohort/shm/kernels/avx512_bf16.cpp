// AVX-512 with VCVTNE2PS2BF16, which rounds as we want but for one thing: it takes numbers below the normal range for zero.
#include "cohort/shm/kernels/avx512_machine.h"

namespace cohort::shm {
namespace {

struct Avx512Bf16 : Avx512 {
  using Avx512::narrow;
  using Avx512::widen;

  COHORT_SHM_INLINE static void widen(U16 from, F32 (&to)[2], BFloat16) {
    const auto numbers = reinterpret_cast<__m512i>(from);
    const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(numbers));
    const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(numbers, 1));
    to[0] = _mm512_castsi512_ps(_mm512_slli_epi32(low, 16));
    to[1] = _mm512_castsi512_ps(_mm512_slli_epi32(high, 16));
  }

  COHORT_SHM_INLINE static U16 narrow(const F32 (&from)[2], BFloat16) {
    constexpr int kDenormal = 0x20;
    const auto rounded = bits_as<U16>(_mm512_cvtne2ps_pbh(from[1], from[0]));
    const __mmask16 low = _mm512_fpclass_ps_mask(from[0], kDenormal);
    const __mmask16 high = _mm512_fpclass_ps_mask(from[1], kDenormal);
    if (__builtin_expect(_mm512_kunpackw(high, low) == 0, 1)) return rounded;
    return narrow_exactly(from);
  }

  COHORT_SHM_INLINE static U16 narrow_exactly(const F32 (&from)[2]) {
    using U32 = Vector<uint32_t, kBytes>;
    const U32 low = rounded_to_bfloat16(reinterpret_cast<U32>(from[0])) >> 16;
    const U32 high = rounded_to_bfloat16(reinterpret_cast<U32>(from[1])) >> 16;
    const __m256i low_half = _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(low));
    const __m256i high_half = _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(high));
    return reinterpret_cast<U16>(_mm512_inserti64x4(_mm512_castsi256_si512(low_half), high_half, 1));
  }
};

template <class R>
using Loop = VectorLoop<Avx512Bf16, R>;

}  // namespace

constinit const KernelTable kAvx512Bf16Kernels = make_table<Loop>();

}  // namespace cohort::shm
