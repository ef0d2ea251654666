/// StepTimes: the times of DDP's steps. The engine notes when things happen; the cost is reading a clock.
///
/// A step begins with its forward pass. A bucket is ready when its last gradient is in it, launched when its reduction begins,
/// and finished when the thread that waits at the end of backward has the result. Its wire time is from launch to finish; its
/// exposed time is the part of the wire time during which backward had nothing left to compute. On accelerators these are the
/// host's times: of putting work into streams, not of running it.
/// Thread-safety: none; the engine's lock protects it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohort/export.h"

namespace cohort::ddp {

class COHORT_TEST_API StepTimes {
 public:
  using Clock = std::chrono::steady_clock;

  /// Nanoseconds; all but the first are since the begin of the forward pass. Follows the performance statistics of
  /// torch/csrc/distributed/c10d/logger.cpp.
  struct Step {
    int64_t forward_begin = 0;   ///< since the epoch
    int64_t backward_begin = 0;  ///< the first gradient has arrived
    int64_t compute_end = 0;     ///< the last bucket is ready
    int64_t comm_begin = 0;      ///< the first bucket is launched
    int64_t comm_end = 0;        ///< the last bucket is finished
    int64_t overlap = 0;         ///< of reductions with backward
  };
  struct Bucket {
    int64_t ready = 0;
    int64_t launched = 0;
    int64_t finished = 0;
    int64_t exposed = 0;
  };

  /// Notes steps 1 to 10, and then each step whose number `rate` divides; the default is 100.
  void set_sample_rate(int64_t rate) { sample_rate_ = rate; }
  /// Restarts the sums per bucket, for new buckets.
  void set_buckets(size_t count);

  void begin_forward();
  /// Begins a step whose gradients are reduced, after its forward pass.
  void begin_step();
  void gradient(size_t parameter);  ///< has arrived
  void ready(size_t bucket);
  void launched(size_t bucket);
  void finished(size_t bucket);  ///< the first call counts
  void end_step();

  int64_t num_steps() const { return num_steps_; }
  /// About the noted steps: their number, the last of them and its number (from 1), their sum, and the order in which gradients
  /// arrived in the last one.
  int64_t num_noted() const { return num_noted_; }
  int64_t last_number() const { return last_number_; }
  const Step& last() const { return last_; }
  const Step& sum() const { return sum_; }
  const std::vector<size_t>& gradient_order() const { return last_order_; }
  /// About the steps noted since set_buckets(): their number and their sum.
  int64_t num_noted_of_buckets() const { return num_noted_of_buckets_; }
  const std::vector<Bucket>& bucket_sums() const { return bucket_sums_; }

 private:
  int64_t now() const { return (Clock::now() - forward_begin_) / std::chrono::nanoseconds(1); }

  int64_t sample_rate_ = 100;
  int64_t num_steps_ = 0;  // begun so far
  bool is_noted_ = false;
  Clock::time_point forward_begin_;
  Step step_;
  std::vector<size_t> order_;
  std::vector<Bucket> buckets_;

  int64_t num_noted_ = 0;
  int64_t last_number_ = 0;
  Step last_;
  Step sum_;
  std::vector<size_t> last_order_;
  int64_t num_noted_of_buckets_ = 0;
  std::vector<Bucket> bucket_sums_;
};

}  // namespace cohort::ddp
