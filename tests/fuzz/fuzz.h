/// What a fuzz target is made of: one function that gets bytes from somebody who means harm. A target fails by dying: a sanitizer
/// finds something, an exception escapes, FUZZ_CHECK does not hold; or it takes more time or memory than one input may.
///
/// Targets run under libFuzzer, or under our own driver.h. The first inputs are those of corpus/TARGET: real messages, and those
/// that once found a fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

/// Returns 0. Keeps nothing from one call to the next.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
/// Before the first input, where a target has it.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);

namespace cohort::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return size ? std::string_view(reinterpret_cast<const char*>(data), size) : std::string_view();
}

/// The text up to `separator`, which is taken off `rest` together with it.
inline std::string_view take_until(std::string_view* rest, char separator) {
  const auto part = rest->substr(0, rest->find(separator));
  rest->remove_prefix(part.size() < rest->size() ? part.size() + 1 : part.size());
  return part;
}

[[noreturn]] inline void fail(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: FUZZ_CHECK(%s) does not hold\n", file, line, condition);
  std::abort();
}

}  // namespace cohort::fuzz

/// What has to hold for every input.
#define FUZZ_CHECK(condition) ((condition) ? void() : ::cohort::fuzz::fail(#condition, __FILE__, __LINE__))
