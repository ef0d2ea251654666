#include "cohort/files/tensors/elements/crc32_wide.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace cohort::files {
namespace {

#define COHORT_WIDE __attribute__((target("avx512f,vpclmulqdq"), always_inline)) inline

// The remainders of x^(distance + 32) and x^(distance - 32), with bits in the order of the checksum's. Multiplying a lane's two
// halves by them moves the halves `distance` bits further.
constexpr long long kFold2048[] = {0x11542778A, 0x1322D1430};
constexpr long long kFold512[] = {0x154442BD4, 0x1C6E41596};

COHORT_WIDE __m512i factors(const long long (&pair)[2]) {
  return _mm512_set4_epi64(pair[1], pair[0], pair[1], pair[0]);
}

COHORT_WIDE __m512i fold(__m512i lanes, __m512i by, __m512i next) {
  const __m512i low = _mm512_clmulepi64_epi128(lanes, by, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(lanes, by, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // exclusive or of the three
}

}  // namespace

bool can_fold_crc32() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"); }

__attribute__((target("avx512f,vpclmulqdq"))) std::array<char, kFoldedBytes> fold_crc32(std::string_view text,
                                                                                        uint32_t before) {
  const char* bytes = text.begin();
  const __m512i start = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~before)));
  __m512i a = _mm512_xor_si512(_mm512_loadu_si512(bytes), start);
  __m512i b = _mm512_loadu_si512(bytes + 64);
  __m512i c = _mm512_loadu_si512(bytes + 128);
  __m512i d = _mm512_loadu_si512(bytes + 192);
  const __m512i far = factors(kFold2048);
  for (size_t at = kFoldBlockBytes; at < text.size(); at += kFoldBlockBytes) {
    a = fold(a, far, _mm512_loadu_si512(bytes + at));
    b = fold(b, far, _mm512_loadu_si512(bytes + at + 64));
    c = fold(c, far, _mm512_loadu_si512(bytes + at + 128));
    d = fold(d, far, _mm512_loadu_si512(bytes + at + 192));
  }
  const __m512i near = factors(kFold512);
  std::array<char, kFoldedBytes> folded;
  _mm512_storeu_si512(folded.data(), fold(fold(fold(a, near, b), near, c), near, d));
  return folded;
}

}  // namespace cohort::files

#else

namespace cohort::files {

bool can_fold_crc32() { return false; }

std::array<char, kFoldedBytes> fold_crc32(std::string_view, uint32_t) { return {}; }

}  // namespace cohort::files

#endif
