/// StepState: the phase of a step, and the reason why no further step can begin.
///
///     kIdle -- prepare() --> kPrepared -- a gradient --> kReducing -- end of backward --> kFinishing -- results --> kIdle
///
/// Thread-safety: none; the engine's lock protects it.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <string>

namespace cohort::ddp {

enum class StepPhase : uint8_t {
  kIdle,
  kPrepared,  ///< waits for backward to bring gradients
  kReducing,  ///< backward has brought the first of them
  kFinishing  ///< waits for the reductions; a step that fails there stays in this phase
};

class StepState {
 public:
  /// Whether gradients belong to this step.
  bool is_expecting() const { return phase_ == StepPhase::kPrepared || phase_ == StepPhase::kReducing; }
  /// Whether gradients have arrived whose reduction has not ended.
  bool is_unfinished() const { return phase_ == StepPhase::kReducing || phase_ == StepPhase::kFinishing; }
  void enter(StepPhase phase) { phase_ = phase; }

  /// Empty if no step has failed.
  const std::string& failure() const { return failure_; }
  void fail(const std::exception& error) {
    const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
    failure_ = c10_error ? c10_error->what_without_backtrace() : error.what();
  }

 private:
  StepPhase phase_ = StepPhase::kIdle;
  std::string failure_;
};

}  // namespace cohort::ddp
