#include "cohort/base/machine/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace cohort::base {

#if defined(__SSE2__)

namespace {

constexpr size_t kLineBytes = 64;

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, size_t num_bytes) {
  const size_t head = std::min(num_bytes, (kLineBytes - reinterpret_cast<uintptr_t>(to) % kLineBytes) % kLineBytes);
  std::memcpy(to, from, head);
  size_t at = head;
  for (; num_bytes - at >= kLineBytes; at += kLineBytes) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();  // makes the copied bytes visible before commit()
  std::memcpy(to + at, from + at, num_bytes - at);
}

#else

void stream_copy(std::byte* to, const std::byte* from, size_t num_bytes) { std::memcpy(to, from, num_bytes); }

#endif

}  // namespace cohort::base
