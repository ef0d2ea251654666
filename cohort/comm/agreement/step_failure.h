/// StepFailure: why this rank has failed in a step that all ranks do. A rank that has failed still takes part in the collectives
/// that others wait for; at the end all ranks learn of it.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/export.h"

namespace cohort::comm {

class COHORT_TEST_API StepFailure {
 public:
  /// Makes attempt() throw from now on: ranks wait for this one in other collectives, which cannot go on. The process ends, and
  /// the ranks that wait learn that they have lost a rank.
  void leave_at_once() { leaves_at_once_ = true; }

  /// Runs the function and keeps an exception as the failure. Throws again for the loss of a rank (c10::DistBackendError),
  /// because nobody can go on after it. `what`: names the function in the error's text.
  template <class Function>
  void attempt(const std::string& what, Function&& function) {
    try {
      std::forward<Function>(function)();
    } catch (...) {
      note(std::current_exception(), what);
    }
  }
  /// Notes that another rank has reported a failure, so this rank cannot compute either.
  void note_other() { has_other_ = true; }

  bool is_there() const { return own_ != nullptr || has_other_; }

  /// Collective. Sends one number, and texts only if a rank has failed. Then it throws: the original exception on a rank that
  /// alone has failed, RankError with all reasons elsewhere and if several have failed. `what`: begins its text.
  void share(const std::string& what, const RankExchange& ranks) const;

 private:
  /// Keeps the error, or throws it again if nobody can go on after it.
  void note(const std::exception_ptr& error, const std::string& what);

  bool leaves_at_once_ = false;
  std::exception_ptr own_;
  bool has_other_ = false;
};

}  // namespace cohort::comm
