/// Replica: the work of DistributedDataParallel around a module's forward, independent of its signature.
///
/// Construction checks and synchronizes the module; before_forward() synchronizes buffers; after_forward() prepares the reducer.
/// Follows _pre_forward and _post_forward of torch/nn/parallel/distributed.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/ddp/reducer.h"
#include "cohort/parallel/ddp/settings/buffer_comm_hook.h"
#include "cohort/parallel/ddp/settings/options.h"
#include "cohort/parallel/module/join.h"

namespace c10 {
struct DDPLoggingData;
}

namespace torch::nn {
class Module;
}

namespace cohort::parallel {
class GradientHook;
}

namespace cohort::ddp {

class Replica;

/// The interface of modules that already average their gradients.
class COHORT_API Replicated {
 public:
  virtual ~Replicated() = default;
  /// The ranks that have copies of the module.
  virtual Group group_of_replicas() const = 0;
  virtual Replica& replica() = 0;
};

class DelayedAllReduce;
class LowPrecision;
class PendingPasses;

class COHORT_API Replica final : public Joinable {
 public:
  /// Collective. Throws as DistributedDataParallel's constructor.
  Replica(torch::nn::Module& module, Options options);
  ~Replica() override;

  /// Collective if buffers are synchronized or buckets rebuilt.
  void before_forward();
  /// `outputs`: every tensor that forward returned, if needs_outputs().
  void after_forward(const std::vector<at::Tensor>& outputs);
  bool needs_outputs() const { return low_precision_ || pending_ || (reducer_ && reducer_->needs_outputs()); }

  bool requires_gradient_sync() const { return requires_gradient_sync_; }
  void set_requires_gradient_sync(bool value) { requires_gradient_sync_ = value; }

  /// The devices to which inputs are moved before forward, and outputs after it; if absent, they stay where they are.
  std::optional<c10::Device> input_device() const;
  std::optional<c10::Device> output_device() const { return options_.output_device; }
  /// The dtype to which floating-point inputs are converted; if absent, they keep theirs.
  std::optional<at::ScalarType> input_dtype() const;
  std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) override;
  c10::Device join_device() const override { return device_; }
  Group join_process_group() const override { return options_.process_group; }
  /// Throws c10::Error if delay_all_reduce_named_params leaves no parameter for it.
  Reducer& reducer();
  /// See buffer_comm_hook.h. Another call replaces the hook. Throws c10::TypeError for an empty function.
  void register_buffer_comm_hook(BufferCommHook hook, BufferCommHookLocation location);
  /// As Reducer::update_process_group; buffers and joins use the new group too.
  void update_process_group(const Group& group);
  /// As Reducer::track_gradient_norm. Also throws c10::Error inside a join, and with delayed gradients.
  void track_gradient_norm(double norm_type);
  /// As Reducer::remove_autograd_hooks, delayed gradients included.
  void remove_autograd_hooks();
  const Options& options() const { return options_; }
  /// See logging_data.h.
  c10::DDPLoggingData ddp_logging_data() const;
  /// Throws c10::ValueError unless `sample_rate` is positive.
  void set_ddp_runtime_logging_sample_rate(int64_t sample_rate);
  std::string ddp_report() const;

 private:
  friend class ReplicaJoinHook;
  friend class LoggingData;
  void set_up_mixed_precision();
  void note_gradient();
  void after_backward();
  void print_report() const;
  bool reduces_gradients() const;
  // Inside a Join `is_candidate` says whether this rank's buffers may become everybody's.
  void synchronize_buffers(bool is_candidate);
  bool synchronizes_buffers_at(BufferCommHookLocation location) const;
  void run_buffer_hook();
  // Without ignored ones, each once. Aliases of the parameters.
  std::vector<at::Tensor> exchanged_parameters() const;
  // A graph that has the buffers does not notice values written into these.
  std::vector<at::Tensor> exchanged_buffers() const;
  // Gives every rank the model of `source`.
  void broadcast_states(int source, bool with_buffers) const;
  int find_common_rank(bool is_candidate) const;
  void announce_step();
  void await_announcements();

  Options options_;
  torch::nn::Module& module_;
  std::unique_ptr<DelayedAllReduce> delayed_;
  std::unique_ptr<LowPrecision> low_precision_;
  std::unique_ptr<Reducer> reducer_;  // null if all gradients are delayed
  bool was_in_join_ = false;
  bool requires_gradient_sync_ = true;
  bool is_removed_ = false;
  BufferCommHook buffer_hook_;
  BufferCommHookLocation buffer_hook_location_ = BufferCommHookLocation::kPreForward;
  bool synchronizes_buffers_ = true;  // off for the forward after a local one
  // Number of forward passes under DDP whose backward has not come yet, and whether the last of them was local.
  std::atomic<int> num_forwards_ = 0;
  std::atomic<bool> is_local_ = false;
  std::unique_ptr<PendingPasses> pending_;  // null if hook_ is, and for LibTorch's reducer
  std::unique_ptr<parallel::GradientHook> hook_;
  // Inside a Join: collectives that tell ranks without data of this forward pass. The first may count the ranks that have data.
  c10::Device device_ = c10::kCPU;
  bool divides_by_live_ranks_ = false;
  WorkPtr num_live_work_;
  WorkPtr announcement_;
};

}  // namespace cohort::ddp
