/// GatheredParamGroup: a group whose ranks gather the full parameters before forward and before backward, and free them
/// afterwards, as FSDPParamGroup of torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py does. For ranks that share no
/// memory, for accelerators, and for features that shared parameters do not have: another dtype to compute in, shards on the CPU,
/// sharding along other dimensions.
///
/// The module's tensors keep their identity: only their memory is allocated and freed (unsharded_storage.h). Shards lie side by
/// side in one buffer per dtype, so that an all-gather needs no copy of them.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "cohort/parallel/fsdp/gathered/flat_lane.h"
#include "cohort/parallel/fsdp/gathered/gradient_reduction.h"
#include "cohort/parallel/fsdp/groups/param_group.h"
#include "cohort/parallel/fsdp/tensors/unsharded_storage.h"
#include "cohort/parallel/module/gradient_hooks.h"

namespace cohort::fsdp {

class GatheredParamGroup final : public ParamGroup, public std::enable_shared_from_this<GatheredParamGroup> {
 public:
  /// The ranks of `shard_group` share the parameters; the ranks of `replica_group`, which may be null, have the same shard of
  /// them. Each rank's shards get its own values; for meta tensors zeros, on the context's device. Throws c10::ValueError for
  /// parameters that cannot be sharded. Collective only if options.reshard_after_forward is a number.
  GatheredParamGroup(const std::vector<NamedParameter>& parameters, const Group& shard_group,
                     const Group& replica_group, std::shared_ptr<CommContext> context, const Options& options);

  void join(std::shared_ptr<CommContext> context, bool is_root) override;
  bool follows_passes() const override { return true; }
  void before_forward() override;
  void expect_backward() override { ++num_expected_; }
  void after_forward() override;
  void after_module() override;
  void unshard(bool in_backward) override;
  void wait_for_unshard() override;
  void reshard() override;
  bool before_backward() override;
  void after_backward() override;
  void end_backward() override;
  void reduce_rest() override {}
  void abandon_forward() override;
  void reset() override;
  GroupMemory memory() const override;
  void write(const Writer* write) override;

 private:
  enum class Phase { kIdle, kForward, kBeforeBackward, kAfterBackward };
  /// Where the parameters are: sharded over all ranks, sharded over a few of them (after forward), or full on this rank.
  enum class Place { kSharded, kPartlySharded, kUnsharded };

  struct Item {
    Chunking chunking;
    at::Tensor
        unsharded;  ///< the module's tensor with a version of its own, so that gathering does not count as writing
    UnshardedStorage storage;
    at::Tensor accumulated;  ///< gradients of earlier passes, in the dtype of the reduction
    size_t lane = 0;
    size_t place = 0;  ///< index in its lane
    bool requires_grad = false;
    parallel::GradientHook hook;
  };
  struct GatherLane : Lane {
    at::Tensor shards;  ///< this rank's row, in the dtype of the parameters
    c10::ScalarType dtype = at::kFloat;
    Lane parts;  ///< the same division for the ranks that keep it after forward
    at::Tensor own_shard;
  };
  struct Gathering {
    at::Tensor output;
    WorkPtr work;
  };

  void split_after_forward(int num_ranks);
  void add(const NamedParameter& parameter, const Options& options);
  void make_shards(const Options& options);
  void shard(size_t index);
  void check_place(size_t index) const;
  void follow_requires_grad(size_t index);
  bool reshards_after_forward() const;
  void keep_parts();
  void let_go();
  /// Frees them after backward, unless it has made a graph, whose own backward pass needs the full parameters.
  void let_go_after_backward();
  void drop_gathering();
  void finish_pass();
  at::Tensor take_gradient(size_t index);
  std::vector<at::Tensor> take_gradients();
  void accumulate(const std::vector<at::Tensor>& gradients);
  void reduce(c10::ScalarType dtype, std::vector<GradientReduction::Part> parts);
  void give(size_t index, const at::Tensor& chunk);
  at::Tensor own_chunk(size_t index) const;
  void write_one(size_t index, const Writer* write);
  c10::ScalarType reduce_dtype(size_t lane) const { return reduce_dtype_.value_or(lanes_[lane].dtype); }
  ReduceSettings reduce_settings() const;

  const Group shard_group_;
  const Group replica_group_;
  const c10::Device device_;
  const int rank_;
  const int world_size_;
  const std::optional<c10::ScalarType> reduce_dtype_;
  Group part_group_;  ///< null unless reshard_after_forward is a number
  std::shared_ptr<CommContext> context_;
  bool is_root_ = false;
  std::vector<Item> items_;
  std::vector<GatherLane> lanes_;
  std::vector<Gathering> gathering_;
  std::map<c10::ScalarType, at::Tensor> kept_back_;  ///< sums of reductions without all-reduce
  Phase phase_ = Phase::kIdle;
  Place place_ = Place::kSharded;
  bool makes_graph_ = false;  ///< whether the backward pass does, for second derivatives
  int num_expected_ = 0;      ///< forward passes for whose inputs backward will compute gradients
  int num_done_ = 0;
  bool was_used_ = false;  ///< by a forward pass that backward may follow
  bool is_finished_ = false;
};

}  // namespace cohort::fsdp
