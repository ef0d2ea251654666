// 32-byte vectors; half-precision conversions with F16C.
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
    if (num_bytes < 16) return load_few<V>(from, num_bytes);
    const auto* last = static_cast<const char*>(from) + num_bytes - 16;
    return reinterpret_cast<V>(_mm256_set_m128i(load<__m128i>(last), load<__m128i>(from)));
  }
  template <class V>
  COHORT_SHM_INLINE static void store_partial(void* to, V vector, size_t num_bytes) {
    if (num_bytes < 16) return store_few(to, vector, num_bytes);
    const auto ends = reinterpret_cast<__m256i>(vector);
    store(to, _mm256_castsi256_si128(ends));
    store(static_cast<char*>(to) + num_bytes - 16, _mm256_extracti128_si256(ends, 1));
  }

  COHORT_SHM_INLINE static void widen(U16 from, F32 (&to)[2], Half) {
    const auto halves = reinterpret_cast<__m256i>(from);
    to[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    to[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
  }
  COHORT_SHM_INLINE static U16 narrow(const F32 (&from)[2], Half) {
    const __m128i low = _mm256_cvtps_ph(one_nan<float>(from[0]), _MM_FROUND_TO_NEAREST_INT);
    const __m128i high = _mm256_cvtps_ph(one_nan<float>(from[1]), _MM_FROUND_TO_NEAREST_INT);
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
