// AVX-512 with VCVTNE2PS2BF16. It rounds as needed, but flushes subnormal numbers to zero and keeps the payload of NaNs, so
// vectors with such numbers take the slow path.
#include "cohort/shm/kernels/avx512_machine.h"

namespace cohort::shm {
namespace {

struct Avx512Bf16 : Avx512 {
  using Avx512::narrow;

  COHORT_SHM_INLINE static U16 narrow(const F32 (&from)[2], BFloat16) {
    constexpr int kQuietNan = 0x01, kDenormal = 0x20, kSignalingNan = 0x80;
    constexpr int kSpecial = kQuietNan | kDenormal | kSignalingNan;
    const __mmask16 even = _mm512_fpclass_ps_mask(from[0], kSpecial);
    const __mmask16 odd = _mm512_fpclass_ps_mask(from[1], kSpecial);
    if (__builtin_expect(!_kortestz_mask16_u8(even, odd), 0)) return narrow_bfloat16<U16>(from);
    // Converts all even numbers, then all odd ones, to alternating numbers.
    const auto halves = bits_as<U16>(_mm512_cvtne2ps_pbh(from[1], from[0]));
    constexpr U16 kAlternating = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                  8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return reinterpret_cast<U16>(
        _mm512_permutexvar_epi16(reinterpret_cast<__m512i>(kAlternating), reinterpret_cast<__m512i>(halves)));
  }
};

template <class R>
using Loop = VectorLoop<Avx512Bf16, R>;

}  // namespace

constinit const KernelTable kAvx512Bf16Kernels = make_table<Loop>();

}  // namespace cohort::shm
