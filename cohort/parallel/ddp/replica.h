/// Replica: what DistributedDataParallel does around a module's forward, without knowing its signature.
///
/// Construction checks and synchronises the module; before_forward() synchronises buffers; after_forward() arms the reducer.
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

/// What tells modules that average their gradients already from others.
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

  /// Collective when buffers are synchronised or buckets rebuilt.
  void before_forward();
  /// `outputs`: every tensor that forward returned, if needs_outputs().
  void after_forward(const std::vector<at::Tensor>& outputs);
  bool needs_outputs() const { return low_precision_ || pending_ || (reducer_ && reducer_->needs_outputs()); }

  bool synchronises_gradients() const { return synchronises_gradients_; }
  void set_synchronises_gradients(bool value) { synchronises_gradients_ = value; }

  /// Device to which inputs are moved, and outputs after forward; absent: they stay where they are.
  std::optional<c10::Device> input_device() const;
  std::optional<c10::Device> output_device() const { return options_.output_device; }
  /// Dtype that floating-point inputs become; absent: they keep theirs.
  std::optional<at::ScalarType> input_dtype() const;
  std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) override;
  c10::Device join_device() const override { return device_; }
  Group join_process_group() const override { return options_.process_group; }
  /// Throws c10::Error if delay_all_reduce_named_params leaves it nothing to do.
  Reducer& reducer();
  /// See buffer_comm_hook.h. Another call takes the place of the hook before. Throws c10::TypeError for an empty function.
  void register_buffer_comm_hook(BufferCommHook hook, BufferCommHookLocation location);
  /// As Reducer::update_process_group; buffers and joins follow.
  void update_process_group(const Group& group);
  /// As Reducer::track_gradient_norm. Throws c10::Error inside of a join, and with delayed gradients, too.
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
  // Inside of a Join `is_candidate` says if this rank's buffers may become everybody's.
  void synchronise_buffers(bool is_candidate);
  bool synchronises_buffers_at(BufferCommHookLocation location) const;
  void run_buffer_hook();
  // Without those to be ignored, each once. Aliases of the parameters.
  std::vector<at::Tensor> exchanged_parameters() const;
  // What is written into these, a graph that has the buffers does not notice.
  std::vector<at::Tensor> exchanged_buffers() const;
  // Every rank's model becomes that of `source`.
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
  bool synchronises_gradients_ = true;
  bool is_removed_ = false;
  BufferCommHook buffer_hook_;
  BufferCommHookLocation buffer_hook_location_ = BufferCommHookLocation::kPreForward;
  bool synchronises_buffers_ = true;  // off for the forward after a local one
  // Forward passes under DDP whose backward has not come yet, and whether the last of them was local.
  std::atomic<int> num_forwards_ = 0;
  std::atomic<bool> is_local_ = false;
  std::unique_ptr<PendingPasses> pending_;  // null where hook_ is, and for LibTorch's reducer
  std::unique_ptr<parallel::GradientHook> hook_;
  // Inside of a Join: collectives that tell ranks without data of this forward pass. The first may count those that have some.
  c10::Device device_ = c10::kCPU;
  bool divides_by_live_ranks_ = false;
  WorkPtr num_live_work_;
  WorkPtr announcement_;
};

}  // namespace cohort::ddp
