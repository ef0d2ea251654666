/// StopSignals: signals that ask a process to end soon, noticed instead of obeyed.
#pragma once

#include <csignal>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace cohort::checkpoint {

/// Handles the given signals while it lives. Each is noticed once; a second one of the same
/// kind has its default action, which ends the process.
/// Thread-safety: one thread constructs and ends them, the last one constructed first.
class COHORT_TEST_API StopSignals {
 public:
  /// Throws c10::ValueError for a number that cannot be handled, such as SIGKILL.
  explicit StopSignals(const std::vector<int>& signals);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The first that has come since one was constructed; 0 if none has.
  static int seen();

 private:
  void restore();
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace cohort::checkpoint
