/// ParamGroup: the parameters of one call of fully_shard. An implementation decides where the full parameters are while modules
/// compute with them, and how gradients get to the shards (PyTorch's FSDPParamGroup).
///
/// Thread-safety: one thread at a time; on accelerators backward calls from autograd's own threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/fsdp/groups/comm_context.h"
#include "cohort/parallel/fsdp/groups/modules_to_run.h"
#include "cohort/parallel/fsdp/settings/group_settings.h"
#include "cohort/parallel/fsdp/tensors/absent_gradients.h"
#include "cohort/parallel/fsdp/tensors/module_tensor.h"
#include "cohort/parallel/fsdp/tensors/sharded_parameter.h"

namespace cohort::fsdp {

/// The memory that a group holds on this rank besides its shards and their gradients, in bytes: see memory_account.h.
struct GroupMemory {
  struct Parameter {
    size_t num_copy_bytes = 0;
    size_t num_waiting_bytes = 0;
  };
  std::vector<Parameter> parameters;
  size_t num_in_flight_bytes = 0;
  size_t num_staging_bytes = 0;
};

/// The sum over the defined tensors.
inline size_t bytes_in(std::initializer_list<at::Tensor> tensors) {
  size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor.defined() ? tensor.nbytes() : 0;
  return bytes;
}

class ParamGroup {
 public:
  virtual ~ParamGroup() = default;

  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  /// `mesh`: of one dimension, or of two, where the ranks along the first are replicas.
  void place_shard(size_t index, std::optional<ModelShard> part, const DeviceMesh& mesh) {
    auto& [name, full, shard, offset, dim, spec, known_shard] = parameters_.at(index);
    spec.emplace(spec_of_shard(full, part, dim, shard.scalar_type(), mesh));
    known_shard = std::move(part);
    leave_sums_of_data(parameters_[index]);
  }
  GroupSettings& settings() { return settings_; }
  const GroupSettings& settings() const { return settings_; }
  /// Of the modules whose parameters it has.
  ModulesToRun& modules_to_run() { return modules_to_run_; }

  /// Sets a function that is called for every gradient that a backward pass brings, before anything else is done with it. Only
  /// for groups with a meeting_group().
  void set_on_gradient(std::function<void()> on_gradient) { on_gradient_ = std::move(on_gradient); }
  /// Sets what it shares with the other groups of its root.
  virtual void join(std::shared_ptr<CommContext>, bool /*is_root*/) {}

  /// The ranks that must meet at the begin and end of passes; null if they need not.
  virtual Group meeting_group() const { return {}; }
  /// A number that is the same on all of these ranks, and different for each group that they make.
  virtual int64_t number() const { return 0; }
  /// Whether it must be told of the outputs and inputs of forward, and of the gradients that backward brings to them.
  virtual bool follows_passes() const { return false; }

  /// Called after shards may have been written, while nobody computes: updates what modules read of this rank's shards.
  virtual void refresh() {}
  /// Makes the full parameters available. Throws c10::Error if a parameter is not as fully_shard has made it.
  virtual void before_forward() = 0;
  /// Called in a forward pass that backward will follow, before its inputs are reported.
  virtual void expect_backward() {}
  virtual void after_forward() {}
  /// Called after one of its modules has run, when others may follow.
  virtual void after_module() {}
  /// Begins to gather the full parameters; before_forward or before_backward will wait. `in_backward`: for a backward pass.
  virtual void unshard(bool /*in_backward*/) {}
  virtual void wait_for_unshard() {}
  virtual void reshard() {}
  /// Called when the gradient of one of its outputs is there. Returns false if that was known.
  virtual bool before_backward() { return false; }
  /// Called when the gradients of all inputs of one forward pass are there.
  virtual void after_backward() {}

  /// Called during backward: continues with work that needs no waiting.
  virtual void poll() {}
  /// Called when this rank's backward pass is over: no more gradients will come.
  virtual void end_backward() = 0;
  /// Called when every rank's backward pass is over. Afterwards the shards have their gradients.
  virtual void reduce_rest() = 0;
  /// Called when backward is over and gradients are in the shards: makes reads of the full parameters' gradients an error.
  void say_where_gradients_are() { absent_gradients_.put(); }
  /// Called when all ranks have reduced the last backward pass and updated their shards.
  virtual void forget_gradients() {}
  /// Called when an exception has ended a forward pass. Accumulated gradients stay.
  virtual void abandon_forward() {}
  /// Called after a failure, or an exception during backward: drops gradients in flight.
  virtual void reset() = 0;
  /// The number of backward passes that this rank has begun to reduce. Ranks agree on it when they meet before forward, since a
  /// rank that had an exception may have counted more than others.
  virtual uint64_t num_passes() const { return 0; }
  virtual void set_num_passes(uint64_t /*count*/) {}
  virtual GroupMemory memory() const = 0;
  /// Collective. Rank 0 of the group calls `write` for every full parameter; `write` is null on the others.
  virtual void write(const Writer* write) = 0;

 protected:
  std::vector<ShardedParameter> parameters_;
  std::function<void()> on_gradient_;
  GroupSettings settings_;
  ModulesToRun modules_to_run_;

 private:
  AbsentGradients absent_gradients_{parameters_};
};

}  // namespace cohort::fsdp
