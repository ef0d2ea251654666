/// Checks inside workers, where a failure is an exception.
#pragma once

#include <c10/util/Exception.h>

#include <iostream>
#include <stdexcept>
#include <string>

namespace cohort::test {

inline void require(bool condition, const char* text) {
  if (!condition) throw std::runtime_error(std::string("expected ") + text);
}

inline void require_equal(const std::string& actual, const std::string& expected) {
  if (actual != expected) throw std::runtime_error("expected: " + expected + "\n     got: " + actual);
}

/// The message of the c10::Error that `fn` throws.
template <class Fn>
std::string error_of(Fn fn) {
  try {
    fn();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "(no error)";
}

/// Prints it, as a worker does for its test.
template <class Fn>
void print_error(Fn fn) {
  std::cout << error_of(fn) << "\n" << std::flush;
}

/// Matches what our texts call a rank: "rank 1 (pid 4711 on node-a)".
inline std::string process_regex(int rank) { return "rank " + std::to_string(rank) + " \\(pid [0-9]+ on [^ ]+\\)"; }

}  // namespace cohort::test

#ifndef REQUIRE
#define REQUIRE(condition) ::cohort::test::require((condition), #condition)
#endif
#define REQUIRE_EQUAL(actual, expected) ::cohort::test::require_equal((actual), (expected))
