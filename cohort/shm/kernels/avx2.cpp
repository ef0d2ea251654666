// 32-byte vectors; half-precision conversions by F16C.
#include <immintrin.h>

#include "cohort/shm/kernels/vectors.h"

namespace cohort::shm {
namespace {

struct Avx2 {
  static constexpr int kBytes = 32;
  using F32 = Vector<float, kBytes>;
  using U16 = Vector<uint16_t, kBytes>;

  template <class V>
  COHORT_SHM_INLINE static V load_partial(const void* from, size_t num_bytes) {
    return load_partial_by_copy<V>(from, num_bytes);
  }
  template <class V>
  COHORT_SHM_INLINE static void store_partial(void* to, V vector, size_t num_bytes) {
    store_partial_by_copy(to, vector, num_bytes);
  }

  COHORT_SHM_INLINE static void widen(U16 from, F32 (&to)[2], Half) {
    const auto halves = reinterpret_cast<__m256i>(from);
    to[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    to[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
  }
  COHORT_SHM_INLINE static U16 narrow(const F32 (&from)[2], Half) {
    const __m128i low = _mm256_cvtps_ph(from[0], _MM_FROUND_TO_NEAREST_INT);
    const __m128i high = _mm256_cvtps_ph(from[1], _MM_FROUND_TO_NEAREST_INT);
    return reinterpret_cast<U16>(_mm256_set_m128i(high, low));
  }

  COHORT_SHM_INLINE static void widen(U16 from, F32 (&to)[2], BFloat16) { widen_bfloat16(from, to); }
  COHORT_SHM_INLINE static U16 narrow(const F32 (&from)[2], BFloat16) { return narrow_bfloat16<U16>(from); }
};

template <class R>
using Loop = VectorLoop<Avx2, R>;

}  // namespace

constinit const KernelTable kAvx2Kernels = make_table<Loop>();

}  // namespace cohort::shm
