/// RunPosition: how far a run has come, and why it ends. It is the same on all ranks; only the reason to end may differ until the
/// ranks agree on it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "cohort/base/numbers/count.h"

namespace cohort::train::detail {

class RunPosition {
 public:
  struct Counters {
    int64_t epoch = 0;    ///< the current or the next one
    int64_t step = 0;     ///< of the optimizer
    int64_t batch = 0;    ///< batches of this epoch that each rank has done
    int64_t samples = 0;  ///< of all ranks
  };

  explicit RunPosition(int64_t accumulation) : accumulation_(accumulation) {}

  /// Begins a run at the first epoch. `accumulation`: batches per step.
  void begin(int64_t accumulation) { *this = RunPosition(accumulation); }
  /// Continues a run from a checkpoint.
  void go_on_at(const Counters& counters) { counters_ = counters; }
  void set_accumulation(int64_t accumulation) { accumulation_ = accumulation; }

  int64_t epoch() const { return counters_.epoch; }
  int64_t step() const { return counters_.step; }
  int64_t batch() const { return counters_.batch; }
  int64_t samples() const { return counters_.samples; }
  int64_t accumulation() const { return accumulation_; }
  /// Returns how many steps `batches` of an epoch make.
  int64_t steps_of(int64_t batches) const { return base::divide_up(batches, accumulation_); }

  void end_batch(int64_t num_samples) {
    ++counters_.batch;
    counters_.samples += num_samples;
  }
  void end_step() { ++counters_.step; }
  void end_epoch() {
    ++counters_.epoch;
    counters_.batch = 0;
  }
  /// Sets how many batches of the current epoch are done, after its batches have changed.
  void set_batch(int64_t batch) { counters_.batch = batch; }

  void stop(std::string reason) { stop_reason_ = std::move(reason); }
  bool is_stopped() const { return !stop_reason_.empty(); }
  const std::string& stop_reason() const { return stop_reason_; }

 private:
  Counters counters_;
  int64_t accumulation_;
  std::string stop_reason_;
};

}  // namespace cohort::train::detail
