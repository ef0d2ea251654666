/// StopSignals: notes signals that ask a process to end soon, instead of ending it.
#pragma once

#include <csignal>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace cohort::checkpoint {

/// Handles the given signals as long as it lives. Notes each once; a second signal of the same
/// kind has its default action, which ends the process.
/// Thread-safety: one thread constructs and destroys them, the last constructed first.
class COHORT_TEST_API StopSignals {
 public:
  /// Throws c10::ValueError for a number that cannot be handled, such as SIGKILL.
  explicit StopSignals(const std::vector<int>& signals);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Returns the first signal that has come since one was constructed; 0 if none has come.
  static int seen();

 private:
  void restore();
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace cohort::checkpoint
