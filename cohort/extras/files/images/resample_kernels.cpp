#include "cohort/extras/files/images/resample_kernels.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace cohort::files::detail {
namespace {

void weigh_plainly(const uint8_t* from, ptrdiff_t stride, const int16_t* weights, size_t num_taps, int precision,
                   uint8_t* to) {
  int32_t sums[kLanes];
  std::fill(std::begin(sums), std::end(sums), precision > 0 ? 1 << (precision - 1) : 0);
  for (size_t j = 0; j < num_taps; ++j, from += stride) {
    const int32_t weight = weights[j];
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += weight * from[lane];
  }
  for (size_t lane = 0; lane < kLanes; ++lane)
    to[lane] = static_cast<uint8_t>(std::clamp(sums[lane] >> precision, 0, 255));
}

void rows_to_columns_plainly(const uint8_t* const* rows, size_t width, uint8_t* to) {
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t x = 0; x < width; ++x) to[x * kLanes + lane] = rows[lane][x];
  }
}

void columns_to_rows_plainly(const uint8_t* from, size_t width, uint8_t* const* rows) {
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t x = 0; x < width; ++x) rows[lane][x] = from[x * kLanes + lane];
  }
}

#ifdef __x86_64__

// Takes rows in pairs: one multiplication sums two taps of eight lanes.
__attribute__((target("avx2"))) void weigh_avx2(const uint8_t* from, ptrdiff_t stride, const int16_t* weights,
                                                size_t num_taps, int precision, uint8_t* to) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i sum0 = _mm256_set1_epi32(precision > 0 ? 1 << (precision - 1) : 0);
  __m256i sum1 = sum0;
  __m256i sum2 = sum0;
  __m256i sum3 = sum0;
  for (size_t j = 0; j < num_taps; j += 2, from += 2 * stride) {
    const bool is_pair = j + 1 < num_taps;
    const uint32_t second = is_pair ? static_cast<uint16_t>(weights[j + 1]) : 0;
    const __m256i weight = _mm256_set1_epi32(static_cast<int32_t>(second << 16 | static_cast<uint16_t>(weights[j])));
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(is_pair ? from + stride : from));
    const __m256i low = _mm256_unpacklo_epi8(a, b);
    const __m256i high = _mm256_unpackhi_epi8(a, b);
    sum0 = _mm256_add_epi32(sum0, _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), weight));
    sum1 = _mm256_add_epi32(sum1, _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), weight));
    sum2 = _mm256_add_epi32(sum2, _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), weight));
    sum3 = _mm256_add_epi32(sum3, _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), weight));
  }
  const __m128i shift = _mm_cvtsi32_si128(precision);
  const __m256i low = _mm256_packs_epi32(_mm256_sra_epi32(sum0, shift), _mm256_sra_epi32(sum1, shift));
  const __m256i high = _mm256_packs_epi32(_mm256_sra_epi32(sum2, shift), _mm256_sra_epi32(sum3, shift));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_packus_epi16(low, high));
}

// Transposes 16 x 16 bytes: four times, rows i and i + 8 become rows 2i and 2i + 1, with their bytes interleaved.
inline void transpose_block(__m128i* block) {
  __m128i other[16];
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 8; ++i) {
      other[2 * i] = _mm_unpacklo_epi8(block[i], block[i + 8]);
      other[2 * i + 1] = _mm_unpackhi_epi8(block[i], block[i + 8]);
    }
    for (int i = 0; i < 8; ++i) {
      block[2 * i] = _mm_unpacklo_epi8(other[i], other[i + 8]);
      block[2 * i + 1] = _mm_unpackhi_epi8(other[i], other[i + 8]);
    }
  }
}

void rows_to_columns_sse2(const uint8_t* const* rows, size_t width, uint8_t* to) {
  __m128i block[16];
  for (size_t lane = 0; lane < kLanes; lane += 16) {
    for (size_t x = 0; x < width; x += 16) {
      for (size_t i = 0; i < 16; ++i) {
        if (width - x >= 16) {
          block[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[lane + i] + x));
        } else {
          block[i] = _mm_setzero_si128();
          std::memcpy(&block[i], rows[lane + i] + x, width - x);
        }
      }
      transpose_block(block);
      for (size_t i = 0; i < 16; ++i) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + (x + i) * kLanes + lane), block[i]);
      }
    }
  }
}

void columns_to_rows_sse2(const uint8_t* from, size_t width, uint8_t* const* rows) {
  __m128i block[16];
  for (size_t lane = 0; lane < kLanes; lane += 16) {
    for (size_t x = 0; x < width; x += 16) {
      for (size_t i = 0; i < 16; ++i) {
        block[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + (x + i) * kLanes + lane));
      }
      transpose_block(block);
      for (size_t i = 0; i < 16; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(rows[lane + i] + x), block[i]);
    }
  }
}

#endif

}  // namespace

const ResampleKernels& plain_kernels() {
  static constexpr ResampleKernels kKernels{weigh_plainly, rows_to_columns_plainly, columns_to_rows_plainly};
  return kKernels;
}

const ResampleKernels& best_kernels() {
#ifdef __x86_64__
  static const ResampleKernels kernels{__builtin_cpu_supports("avx2") ? weigh_avx2 : weigh_plainly,
                                       rows_to_columns_sse2, columns_to_rows_sse2};
  return kernels;
#else
  return plain_kernels();
#endif
}

}  // namespace cohort::files::detail
