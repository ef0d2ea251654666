/// StepFailure: why this rank has failed in a step that all ranks do. A rank that has failed goes on with what others wait for;
/// at the end all ranks learn of it.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/export.h"

namespace cohort::comm {

class COHORT_TEST_API StepFailure {
 public:
  /// From now on attempt() throws: there are ranks that wait for this one in other collectives, which nobody can go on with. The
  /// process ends, and those who wait are told of a lost rank.
  void leave_at_once() { leaves_at_once_ = true; }

  /// Runs it; what it throws becomes the failure, but for the loss of a rank (c10::DistBackendError), after which there is nobody
  /// to go on for. `what`: what runs, for the error's text.
  template <class Function>
  void attempt(const std::string& what, Function&& function) {
    try {
      std::forward<Function>(function)();
    } catch (...) {
      note(std::current_exception(), what);
    }
  }
  /// Another rank has said that it has failed: nothing can be computed here either.
  void note_other() { has_other_ = true; }

  bool is_there() const { return own_ != nullptr || has_other_; }

  /// Collective. One number travels, and texts only where a rank has failed. Then it throws: on a rank that alone has failed what
  /// was thrown there; elsewhere, and where several have, RankError with the reasons of all. `what`: begins its text.
  void share(const std::string& what, const RankExchange& ranks) const;

 private:
  /// Throws again what nobody can go on after.
  void note(const std::exception_ptr& error, const std::string& what);

  bool leaves_at_once_ = false;
  std::exception_ptr own_;
  bool has_other_ = false;
};

}  // namespace cohort::comm
