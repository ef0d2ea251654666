/// Tells the address sanitizer and valgrind about blocks, so that they find misuse.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif
#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#endif

namespace cohort::shm {

inline void show_block([[maybe_unused]] void* block, [[maybe_unused]] size_t num_bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(block, num_bytes);
#endif
#if defined(VALGRIND_MALLOCLIKE_BLOCK)
  VALGRIND_MALLOCLIKE_BLOCK(block, num_bytes, 0, 0);
#endif
}

inline void hide_block([[maybe_unused]] void* block, [[maybe_unused]] size_t num_bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(block, num_bytes);
#endif
#if defined(VALGRIND_FREELIKE_BLOCK)
  VALGRIND_FREELIKE_BLOCK(block, 0);
#endif
}

}  // namespace cohort::shm
