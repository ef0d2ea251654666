/// The backends that the conformance suite runs on. A new one joins by one line of backends.cpp.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tests/support/rank_threads.h"

namespace cohort::test {

/// A feature of the suite (an operation's name, "monitored_barrier", or "dtype uint16") that a backend does without.
struct Excuse {
  std::string feature;
  std::string reason;
};

struct BackendUnderTest {
  /// For init_process_group.
  std::string name;
  MakeBackend make;
  /// How many ranks, as threads and as processes. 4 ranks have the short list of sizes.
  std::vector<int> world_sizes_of_threads;
  std::vector<int> world_sizes_of_processes;
  std::vector<Excuse> excused;
  /// Fewer cases than this on the ranks of one tier mean that the suite has lost some.
  int least_cases_in_threads;
  int least_cases_in_processes;
};

/// For GoogleTest.
inline void PrintTo(const BackendUnderTest& backend, std::ostream* out) { *out << backend.name; }

const std::vector<BackendUnderTest>& backends_under_test();

}  // namespace cohort::test
