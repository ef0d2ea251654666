// 16-byte vectors, which every aarch64 has, with half-precision conversions.
#include <arm_neon.h>

#include "cohort/shm/kernels/vectors.h"

namespace cohort::shm {
namespace {

struct Neon {
  static constexpr int kBytes = 16;
  using F32 = Vector<float, kBytes>;
  using U16 = Vector<uint16_t, kBytes>;

  template <class V>
  COHORT_SHM_INLINE static V load_partial(const void* from, size_t num_bytes) {
    return load_few<V>(from, num_bytes);
  }
  template <class V>
  COHORT_SHM_INLINE static void store_partial(void* to, V vector, size_t num_bytes) {
    store_few(to, vector, num_bytes);
  }

  COHORT_SHM_INLINE static void widen(U16 from, F32 (&to)[2], Half) {
    const auto halves = bits_as<float16x8_t>(from);
    to[0] = bits_as<F32>(vcvt_f32_f16(vget_low_f16(halves)));
    to[1] = bits_as<F32>(vcvt_high_f32_f16(halves));
  }
  COHORT_SHM_INLINE static U16 narrow(const F32 (&from)[2], Half) {
    const float16x4_t low = vcvt_f16_f32(bits_as<float32x4_t>(one_nan<float>(from[0])));
    return bits_as<U16>(vcvt_high_f16_f32(low, bits_as<float32x4_t>(one_nan<float>(from[1]))));
  }

  COHORT_SHM_INLINE static void widen(U16 from, F32 (&to)[2], BFloat16) { widen_bfloat16(from, to); }
  COHORT_SHM_INLINE static U16 narrow(const F32 (&from)[2], BFloat16) { return narrow_bfloat16<U16>(from); }
};

template <class R>
using Loop = VectorLoop<Neon, R>;

}  // namespace

constinit const KernelTable kNeonKernels = make_table<Loop>();

}  // namespace cohort::shm
