/// RunState: the content of a checkpoint of a Trainer's run, and how a run resumes from it.
///
/// Keys: "model.<name>" and "optimizer.<key>" (distributed_state.h); the plain values "trainer", "schedulers", "scaler" and
/// "callbacks"; and for each rank:
/// "rank.<rank>.rng": its CPU random numbers; "rank.<rank>.rng.1" and so on: those of its accelerators;
/// "rank.<rank>.stage.1.rng" and so on: those of the other stages of its pipeline;
/// "rank.<rank>.loader": its position in the data; "rank.<rank>.loss": its losses of this epoch;
/// "rank.<rank>.buffer.<name>", if ranks have buffers of their own.
/// Ranks that shard sequences count as one rank here; the random numbers and buffers of the others begin with
/// "rank.<rank>.part.1." and so on. Memory snapshots have the keys of checkpoint::snapshot_state instead of the first two, "own."
/// instead of "rank.<rank>.", and "metadata".
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cohort/checkpoint/checkpointer/checkpointer.h"
#include "cohort/checkpoint/recovery/snapshot_state.h"
#include "cohort/train/trainer/trainer_core.h"

namespace cohort::train::detail {

class RunState {
 public:
  /// `loss`: [2] float64, the sum of losses and the number of samples of this rank in this epoch.
  RunState(TrainerCore& core, ErasedTask& task, BatchFeed& train, at::Tensor loss)
      : core_(core), task_(task), train_(train), loss_(std::move(loss)) {}

  /// Collective. The tensors share memory with the model and optimizer.
  checkpoint::ShardedStateDict collect();
  /// The metadata in the manifest.
  std::map<std::string, std::string> metadata() const;
  /// Whether a checkpoint with this metadata was made by this process's job, before the launcher restarted it.
  static bool is_of_this_job(const std::map<std::string, std::string>& metadata);

  /// Returns the state for memory snapshots. This RunState must outlive it.
  checkpoint::SnapshotState in_memory();

  /// Adapts gradient accumulation, batch size or learning rate to another world size, as the options say, before anything is
  /// loaded. Throws c10::ValueError if that is impossible, or if the settings differ (CheckpointOptions::settings).
  void fit_to(const std::map<std::string, std::string>& metadata);
  /// Call it after `state` was filled from a checkpoint. Collective.
  void restore(checkpoint::ShardedStateDict& state);
  /// Returns the state that a checkpoint fills.
  checkpoint::ShardedStateDict expected();
  /// Restores random numbers. Call it once the resumed epoch has begun, as beginning it draws some.
  void restore_random_numbers();
  /// The factor of learning rates, if OnNewWorldSize::kScaleLearningRate asks for one, else 1.
  double rate_factor() const { return rate_factor_; }

 private:
  bool is_same_world() const { return saved_world_size_ == core_.place().num_data_ranks; }
  bool has_own_shards() const { return is_same_world() && saved_sequence_shards_ == core_.place().num_sequence_shards; }
  bool has_own_numbers() const { return has_own_shards() && saved_stages_ == core_.place().num_stages; }
  /// Prefixes of keys; `line`: for what is the same on all ranks that read the same data.
  struct Prefixes {
    std::string line;
    std::string part;
  };
  Prefixes own_prefixes() const;
  at::Tensor mean_loss_of_line() const;
  std::string key_of_generator(const std::string& prefix, size_t number) const;
  void add_model(checkpoint::ShardedStateDict& state);
  void add_run(checkpoint::ShardedStateDict& state, const Prefixes& prefixes, const at::Tensor& loss);
  void add_random_numbers(checkpoint::ShardedStateDict& state, const std::string& prefix, size_t count) const;
  void keep_random_numbers(const checkpoint::ShardedStateDict& state, const std::string& prefix);
  void add_own_buffers(checkpoint::ShardedStateDict& state, const std::string& prefix);
  void check_settings(const std::map<std::string, std::string>& metadata) const;
  void keep_global_batch(int64_t batch_size, int64_t accumulation);
  void restore_run(const checkpoint::ShardedStateDict& state, const Prefixes& prefixes,
                   const std::string& loader_prefix);
  void restore_own_buffers(const checkpoint::ShardedStateDict& state, const std::string& prefix);
  void restore_loader(const c10::IValue& value);
  void restore_schedulers(const c10::IValue& value);
  void scale_rates();

  TrainerCore& core_;
  ErasedTask& task_;
  BatchFeed& train_;
  at::Tensor loss_;
  int64_t saved_world_size_ = 0;
  int64_t saved_stages_ = 1;
  int64_t saved_sequence_shards_ = 1;
  int64_t saved_samples_ = 0;  ///< of a batch of all ranks
  bool saved_own_buffers_ = false;
  /// Counted from the CPU's; only the CPU's if there are other accelerators now.
  size_t num_saved_generators_ = 1;
  double rate_factor_ = 1.0;
  /// States of generators(), from the first on, until they are restored.
  std::vector<at::Tensor> random_numbers_;
};

/// Returns the number of samples in a batch of one rank. Throws c10::ValueError if the loader has a batch sampler.
int64_t batch_size_of(const BatchFeed& feed, int world_size);

}  // namespace cohort::train::detail
