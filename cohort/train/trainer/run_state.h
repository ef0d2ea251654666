/// RunState: what a checkpoint of a Trainer's run has, and how a run goes on from it.
///
/// Keys: "model.<name>", "optimizer.<key>" (distributed_state.h); the plain values "trainer", "schedulers", "scaler" and
/// "callbacks"; of each rank "rank.<rank>.rng", its random numbers, "rank.<rank>.rng.1" and so on, those of its accelerators,
/// "rank.<rank>.stage.1.rng" and so on those of a pipeline's other stages, "rank.<rank>.loader", its place in the data,
/// "rank.<rank>.loss", its losses of this epoch, and "rank.<rank>.buffer.<name>" where ranks have buffers of their own. Of ranks
/// that share out sequences, which are one in this, the others' random numbers and buffers begin with "rank.<rank>.part.1." and
/// so on. States in memory have those of checkpoint::snapshot_state instead of the first two, "own." instead of "rank.<rank>.",
/// and "metadata".
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
  /// `loss`: [2] float64, sum of losses and number of samples, of this rank in this epoch.
  RunState(TrainerCore& core, ErasedTask& task, BatchFeed& train, at::Tensor loss)
      : core_(core), task_(task), train_(train), loss_(std::move(loss)) {}

  /// Collective. Tensors share memory with what trains.
  checkpoint::ShardedStateDict collect();
  /// What stands in the manifest.
  std::map<std::string, std::string> metadata() const;
  /// Whether a checkpoint with this was made by the job of this process, before the launcher restarted it.
  static bool is_of_this_job(const std::map<std::string, std::string>& metadata);

  /// For states in memory. This must outlive it.
  checkpoint::SnapshotState in_memory();

  /// Brings accumulation, batch size or learning rate into line with another world size, as the options say, before anything is
  /// loaded. Throws c10::ValueError where that cannot be, or where other settings were given (CheckpointOptions::settings).
  void fit_to(const std::map<std::string, std::string>& metadata);
  /// After `state` was filled from a checkpoint. Collective.
  void restore(checkpoint::ShardedStateDict& state);
  /// The state to be filled.
  checkpoint::ShardedStateDict expected();
  /// Random numbers, once the epoch has begun that goes on: beginning draws some.
  void restore_random_numbers();
  /// The rate's factor where OnNewWorldSize::kScaleLearningRate asks for one.
  double rate_factor() const { return rate_factor_; }

 private:
  bool is_same_world() const { return saved_world_size_ == core_.place().num_data_ranks; }
  bool has_own_parts() const { return is_same_world() && saved_sequence_parts_ == core_.place().num_sequence_parts; }
  bool has_own_numbers() const { return has_own_parts() && saved_stages_ == core_.place().num_stages; }
  /// Of keys: `line` of what ranks have alike that read the same.
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
  int64_t saved_sequence_parts_ = 1;
  int64_t saved_samples_ = 0;  ///< of a batch of all ranks
  bool saved_own_buffers_ = false;
  /// From the CPU's on; the CPU's alone where there are other accelerators now.
  size_t num_saved_generators_ = 1;
  double rate_factor_ = 1.0;
  /// Of generators() from the first on, until they are restored.
  std::vector<at::Tensor> random_numbers_;
};

/// Samples in a batch of one rank. Throws c10::ValueError where the loader forms batches in a way of its own.
int64_t batch_size_of(const BatchFeed& feed, int world_size);

}  // namespace cohort::train::detail
