/// The state that a PowerSGD hook keeps from step to step (PowerSGDState in
/// torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py).
///
/// The state belongs to one rank. After a restart every rank must load its own: `torch::save(*state, path_of_rank)` and
/// `torch::load(*state, path_of_rank)`. Otherwise training continues without the error feedback collected so far.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace cohort::ddp {

struct PowerSGDOptions {
  /// If null, the default group.
  Group process_group = {};
  /// Columns of the matrices that are sent in place of a gradient: more columns approximate it better and take more bytes.
  int64_t matrix_approximation_rank = 1;
  /// Number of iterations at the beginning whose gradients are all-reduced uncompressed.
  int64_t start_power_sgd_iter = 1000;
  /// Compresses a gradient only if that reduces its size by more than this factor.
  double min_compression_rate = 2;
  /// Adds the compression error to the gradient of the next step.
  bool use_error_feedback = true;
  /// Begins each step with the matrices of the step before, instead of random ones.
  bool warm_start = true;
  /// See orthogonalize().
  double orthogonalization_epsilon = 0;
  /// Seed of the random matrices; the same on all ranks.
  uint32_t random_seed = 0;
  /// Iterations between two reports of the compression in the log (COHORT_LOG_LEVEL=info).
  int64_t compression_stats_logging_frequency = 10000;
  /// Computes gradients of the same shape together.
  bool batch_tensors_with_same_shape = false;
};

struct CompressionStats {
  double compress_rate = 0;
  int64_t numel_before_compression = 0;
  int64_t numel_after_compression = 0;
};

class COHORT_API PowerSGDState {
 public:
  /// Throws c10::ValueError for start_power_sgd_iter <= 1 with error feedback or warm start: buckets are rebuilt after the first
  /// iteration, and state kept for an old bucket would not fit any more.
  explicit PowerSGDState(PowerSGDOptions options = {});

  const PowerSGDOptions& options() const { return options_; }
  /// The number of iterations done.
  int64_t iter() const { return iter_; }
  /// Since the first iteration.
  CompressionStats compression_stats() const;

  /// Saves everything but the process group, as in PyTorch.
  void save(torch::serialize::OutputArchive& archive) const;
  /// Loads everything, options included; the process group stays as it is. Throws c10::Error for an archive without such a state;
  /// this state is then unchanged.
  void load(torch::serialize::InputArchive& archive);

 private:
  friend class PowerSGDStep;
  friend class BatchedPowerSGDStep;
  friend COHORT_API CommHookFuture power_sgd_hook(const std::shared_ptr<PowerSGDState>&, GradBucket&);
  friend COHORT_API CommHookFuture batched_power_sgd_hook(const std::shared_ptr<PowerSGDState>&, GradBucket&);

  bool compresses() const { return iter_ >= options_.start_power_sgd_iter; }
  void count(const GradBucket& bucket);
  void report(const GradBucket& bucket);
  /// Draws a seed for the random matrices of one bucket, as numpy's RandomState(random_seed).randint(1_000_000_000) does.
  uint64_t draw_seed();

  PowerSGDOptions options_;
  std::mt19937 generator_;
  std::map<int64_t, at::Tensor> errors_;  // by index of the bucket, like the two below
  std::map<int64_t, at::Tensor> ps_;
  std::map<int64_t, at::Tensor> qs_;
  int64_t iter_ = 0;
  int64_t num_before_compression_ = 0;
  int64_t num_after_compression_ = 0;
  int64_t next_report_ = 0;
};

COHORT_API torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                       const PowerSGDState& state);
COHORT_API torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, PowerSGDState& state);

}  // namespace cohort::ddp
