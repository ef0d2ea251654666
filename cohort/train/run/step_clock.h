/// StepClock: measures where the time of training goes. Its only cost is reading a clock.
///
/// With accelerators it measures the host's time, which it takes to fill the streams, not the device's. Thread-safety: none.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

#include "cohort/export.h"

namespace cohort::train {

enum class StepPart {
  kData,           ///< waiting for a batch
  kForward,        ///< forward and loss
  kBackward,       ///< without communication
  kCommunication,  ///< waiting for other ranks in backward (ddp)
  kStep,           ///< clipping, the optimizer, schedulers
  kOther,          ///< evaluation, checkpoints, callbacks, logs
};

/// Nanoseconds by part.
struct StepTimes {
  std::array<std::chrono::nanoseconds, 6> parts{};
  std::chrono::nanoseconds& operator[](StepPart part) { return parts[static_cast<size_t>(part)]; }
  std::chrono::nanoseconds operator[](StepPart part) const { return parts[static_cast<size_t>(part)]; }
  StepTimes operator-(const StepTimes& before) const {
    StepTimes rest = *this;
    for (size_t i = 0; i < parts.size(); ++i) rest.parts[i] -= before.parts[i];
    return rest;
  }
  std::chrono::nanoseconds total() const {
    std::chrono::nanoseconds sum{0};
    for (const auto part : parts) sum += part;
    return sum;
  }
  /// Between 0 and 1; 0 if no time has passed.
  double share(StepPart part) const {
    return total().count() == 0 ? 0.0
                                : static_cast<double>((*this)[part].count()) / static_cast<double>(total().count());
  }
};

class StepClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Adds the time since the last call to `part`.
  void lap(StepPart part) {
    const auto now = Clock::now();
    times_[part] += now - last_;
    last_ = now;
  }
  /// Counts `waited` of backward's time as communication.
  void move_to_communication(std::chrono::nanoseconds waited) {
    waited = std::clamp(waited, std::chrono::nanoseconds(0), times_[StepPart::kBackward]);
    times_[StepPart::kBackward] -= waited;
    times_[StepPart::kCommunication] += waited;
  }
  void begin() {
    times_ = {};
    last_ = Clock::now();
  }
  const StepTimes& times() const { return times_; }

 private:
  StepTimes times_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace cohort::train
