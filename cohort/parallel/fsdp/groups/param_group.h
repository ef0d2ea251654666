/// ParamGroup: the parameters of one call of fully_shard. Whoever implements it decides where the whole parameters are while
/// modules compute with them, and how gradients become those of the shards (PyTorch's FSDPParamGroup).
///
/// Thread-safety: one thread at a time; on accelerators backward calls from autograd's own.
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

/// What a group holds on this rank beside its shards and their gradients, in bytes: see memory_account.h.
struct GroupMemory {
  struct Parameter {
    size_t num_copy_bytes = 0;
    size_t num_waiting_bytes = 0;
  };
  std::vector<Parameter> parameters;
  size_t num_in_flight_bytes = 0;
  size_t num_staging_bytes = 0;
};

/// Of those that are defined.
inline size_t bytes_in(std::initializer_list<at::Tensor> tensors) {
  size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor.defined() ? tensor.nbytes() : 0;
  return bytes;
}

class ParamGroup {
 public:
  virtual ~ParamGroup() = default;

  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  /// `mesh`: of one dimension, or of two, of which the first one's ranks are replicas.
  void place_shard(size_t index, std::optional<ModelPart> part, const DeviceMesh& mesh) {
    auto& [name, full, shard, offset, dim, spec, known_part] = parameters_.at(index);
    spec.emplace(spec_of_shard(full, part, dim, shard.scalar_type(), mesh));
    known_part = std::move(part);
    leave_sums_of_data(parameters_[index]);
  }
  GroupSettings& settings() { return settings_; }
  const GroupSettings& settings() const { return settings_; }
  /// Of those whose parameters it has.
  ModulesToRun& modules_to_run() { return modules_to_run_; }

  /// Called for every gradient that a backward pass brings, before anything else is done with it. Only of groups that meet.
  void set_on_gradient(std::function<void()> on_gradient) { on_gradient_ = std::move(on_gradient); }
  /// What it shares with the other groups of its root.
  virtual void join(std::shared_ptr<CommContext>, bool /*is_root*/) {}

  /// The ranks that must meet where passes begin and end; null: they need not.
  virtual Group meeting_group() const { return {}; }
  /// The same on all of these ranks, and another one for each group that they make.
  virtual int64_t number() const { return 0; }
  /// True: it must be told of the outputs and inputs of forward, and of what backward brings to them.
  virtual bool follows_passes() const { return false; }

  /// Shards may have been written: what modules read of this rank's follows. Nobody computes meanwhile.
  virtual void refresh() {}
  /// The whole parameters are there when it returns. Throws c10::Error where one is no longer what fully_shard has made of it.
  virtual void before_forward() = 0;
  /// In a forward pass that backward will follow: its inputs will be told of.
  virtual void expect_backward() {}
  virtual void after_forward() {}
  /// One of its modules has run, and others may follow.
  virtual void after_module() {}
  /// Begins to fetch the whole parameters; before_forward or before_backward will wait. `in_backward`: for a backward pass.
  virtual void unshard(bool /*in_backward*/) {}
  virtual void wait_for_unshard() {}
  virtual void reshard() {}
  /// The gradient of one of its outputs is there. Returns false if that was known.
  virtual bool before_backward() { return false; }
  /// Those of all inputs of one forward pass are.
  virtual void after_backward() {}

  /// In the middle of backward: goes on with what needs no waiting.
  virtual void poll() {}
  /// This rank's backward pass is over: what has not come will not come.
  virtual void end_backward() = 0;
  /// Every rank's is. Afterwards the shards have their gradients.
  virtual void reduce_rest() = 0;
  /// Backward is over, and gradients are in the shards.
  void say_where_gradients_are() { absent_gradients_.put(); }
  /// All ranks have reduced the last backward pass, and have done what they do to their shards.
  virtual void forget_gradients() {}
  /// An exception has ended a forward pass. Gradients that have been added up stay.
  virtual void abandon_forward() {}
  /// After a failure, or an exception in the middle of backward: gradients that are on their way are let go.
  virtual void reset() = 0;
  /// How many backward passes this rank has begun to reduce. The ranks agree on it where they meet before forward, since one that
  /// has had an exception may have counted more than others.
  virtual uint64_t num_passes() const { return 0; }
  virtual void set_num_passes(uint64_t /*count*/) {}
  virtual GroupMemory memory() const = 0;
  /// Collective. Rank 0 of the group calls `write` for every whole parameter; null on the others.
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
