/// StepFailure: what has gone wrong on this rank in a step. A rank that has failed goes on to send and to receive what its list
/// says, with zeros, so that nobody waits for it; at the end all ranks learn of it.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "cohort/comm/group/process_group.h"

namespace cohort::pipeline {

class StepFailure {
 public:
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

  /// Collective, where there is a group of several. Throws if any rank has failed: there what was thrown, elsewhere, and where
  /// several have, c10::Error with all their texts.
  void share(const Group& group, int group_size) const;

 private:
  /// Throws again what nobody can go on after.
  void note(const std::exception_ptr& error, const std::string& what);

  std::exception_ptr own_;
  bool has_other_ = false;
};

}  // namespace cohort::pipeline
