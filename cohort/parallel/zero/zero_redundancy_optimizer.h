/// ZeroRedundancyOptimizer: any optimizer of LibTorch except LBFGS, with its state partitioned among the ranks (ZeRO, stage 1:
/// https://arxiv.org/abs/1910.02054). Each parameter belongs to one rank, which alone keeps its state and updates it; then the
/// owners broadcast their parameters. Semantics and texts of torch/distributed/optim/zero_redundancy_optimizer.py.
///
///     cohort::DistributedDataParallel ddp(net);
///     auto zero = cohort::ZeroRedundancyOptimizer::make<torch::optim::AdamW>(ddp->parameters(),
///                                                                            torch::optim::AdamWOptions(1e-3));
///     for (...) {
///       zero.zero_grad();
///       loss_fn(ddp(input), target).backward();
///       zero.step();
///     }
///     zero.consolidate_state_dict();                                // on all ranks
///     if (rank == 0) torch::save(zero.state_dict(), "optimizer.pt");
///
/// It is a torch::optim::Optimizer: changes of the options of param_groups(), by learning-rate schedulers or others, reach the
/// local optimizer in the next step. Its own state() is empty; the owned part is in optim().
///
/// Every rank must have equal parameters at the start, and gradients that DistributedDataParallel has made equal, since only the
/// owner's gradients count. Thread-safety: none.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/module/join.h"

namespace cohort {

struct ZeroOptions {
  /// If null, the default group.
  Group process_group = {};
  /// Makes the parameters of each owner views of one tensor, which is broadcast at once. If false, each parameter is broadcast by
  /// itself.
  bool parameters_as_bucket_view = false;
  /// Updates parameters while backward runs, in a hook (ddp_zero_hook.h); step() does nothing, and parameters_as_bucket_view is
  /// ignored.
  bool overlap_with_ddp = false;
  /// If the ranks share memory (on the CPU, on one host), keeps the parameters once for all of them: step() sends nothing, the
  /// ranks only wait for each other, and a host needs 1 / N of the memory for parameters. Only the optimizer of a parameter's
  /// owner can write it; any other write, such as load_state_dict of the module, ends in SIGSEGV with a text, even after this
  /// object is destroyed. So load first, then construct DistributedDataParallel, and then this. If the ranks do not share memory,
  /// it has no effect. parameters_as_bucket_view is ignored.
  bool one_memory = false;
};

namespace zero {
class OverlappedStep;
class SharedParameters;
}  // namespace zero

class COHORT_API ZeroRedundancyOptimizer final : public torch::optim::Optimizer, public Joinable {
 public:
  using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;
  /// Makes an optimizer over groups, some or all of which may be empty. Groups without options have its defaults.
  using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(ParamGroups)>;

  /// Every rank of the group must give the same parameters, groups and options.
  /// Throws c10::ValueError for an empty list of parameters, sparse ones, several dtypes or kinds of device, a parameter listed
  /// twice (PyTorch's texts), on a rank outside the group, for one_memory with overlap_with_ddp, and for too little memory.
  ZeroRedundancyOptimizer(const ParamGroups& param_groups, const MakeOptimizer& make_optimizer,
                          const ZeroOptions& options = {});
  ZeroRedundancyOptimizer(std::vector<at::Tensor> params, const MakeOptimizer& make_optimizer,
                          const ZeroOptions& options = {})
      : ZeroRedundancyOptimizer(ParamGroups{{std::move(params)}}, make_optimizer, options) {}
  ~ZeroRedundancyOptimizer() override;
  ZeroRedundancyOptimizer(const ZeroRedundancyOptimizer&) = delete;
  ZeroRedundancyOptimizer& operator=(const ZeroRedundancyOptimizer&) = delete;

  /// make<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(1e-3), {.parameters_as_bucket_view = true})
  template <class OptimizerClass, class Parameters, class Defaults>
  static ZeroRedundancyOptimizer make(Parameters&& params, Defaults defaults, const ZeroOptions& options = {}) {
    return ZeroRedundancyOptimizer(
        std::forward<Parameters>(params),
        [defaults = std::move(defaults)](ParamGroups groups) -> std::unique_ptr<torch::optim::Optimizer> {
          return std::make_unique<OptimizerClass>(std::move(groups), defaults);
        },
        options);
  }

  /// Updates this rank's parameters with the local optimizer, which gets `closure`, and broadcasts all. Collective. Returns the
  /// local optimizer's loss. With overlap_with_ddp it warns and returns an undefined tensor.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// Call it on all ranks. Owners stay as they are. Throws as the constructor. (The base class's function works too: its groups
  /// are added in the next step.)
  void add_param_group(const torch::optim::OptimizerParamGroup& param_group);

  /// Gathers the state of all parameters on rank `to` of the group, in the host's memory. Collective.
  void consolidate_state_dict(int to = 0);
  /// Returns an optimizer of the wrapped kind over all parameters, in the order of param_groups(): with their present options,
  /// and their state at the last consolidation. It is equivalent to an optimizer that was never partitioned, for torch::save and
  /// checkpoint::save_checkpoint. It lives until the next consolidate_state_dict or add_param_group.
  /// Throws c10::Error on a rank that does not have the state (PyTorch's text).
  torch::optim::Optimizer& state_dict() const;
  /// Loads the options, and this rank's shard of the state, as deep copies. Parameters are identified by their places in the
  /// groups, so `full` may come from another number of ranks, or from another model. Parameters without a state in it have none
  /// afterwards.
  /// Throws c10::TypeError for another kind of optimizer, c10::ValueError for other groups (PyTorch's texts).
  void load_state_dict(const torch::optim::Optimizer& full);
  /// Returns an optimizer into which to read a checkpoint, for load_state_dict: of the wrapped kind, over all parameters, without
  /// their state.
  std::unique_ptr<torch::optim::Optimizer> full_optimizer() const;

  /// torch::save and torch::load of this object: as state_dict() and load_state_dict(), with the file of an ordinary optimizer.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  /// The local optimizer, over the parameters of this rank. Its options may be those of an earlier step.
  torch::optim::Optimizer& optim() const { return *local_; }
  /// [rank][group]: the parameters that each rank owns.
  const std::vector<std::vector<std::vector<at::Tensor>>>& partition() const { return partition_; }

  /// Returns a hook that makes a step(). "Gradients must be properly set before": otherwise a rank whose data has ended uses the
  /// gradients of its last step. With overlap_with_ddp they come from the reduction; list DistributedDataParallel first in the
  /// Join then.
  std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) override;
  c10::Device join_device() const override { return device_; }
  Group join_process_group() const override { return group_; }

 private:
  friend class zero::OverlappedStep;
  struct Place {
    int owner = 0;
    size_t group = 0;
  };

  ZeroRedundancyOptimizer(std::unique_ptr<torch::optim::Optimizer> blank, const ParamGroups& param_groups,
                          MakeOptimizer make_optimizer, const ZeroOptions& options);
  void adopt_groups();
  void check_params(const std::vector<at::Tensor>& params) const;
  void repartition();
  ParamGroups groups_of(int rank) const;
  void rebuild_after_trainability_changed();
  std::vector<bool> trainability() const;
  void build_param_buckets();
  void share_parameters();
  at::Tensor step_and_sync(LossClosure closure);
  at::Tensor step_in_one_memory(const LossClosure& closure);
  void sync_params();
  // Returns the bytes of each rank on rank `to`, elsewhere an empty list.
  std::vector<std::string> gather_bytes(const std::string& own, int to) const;
  // Updates these parameters, all of them this rank's, with the local optimizer, using `gradients` as their gradients.
  void step_part(const std::vector<at::Tensor>& params, std::vector<at::Tensor> gradients);

  MakeOptimizer make_optimizer_;
  Group group_;
  int rank_;
  int world_size_;
  bool parameters_as_bucket_view_;
  bool overlap_with_ddp_;
  c10::Device device_;
  std::unique_ptr<torch::optim::Optimizer> local_;
  std::vector<std::vector<std::vector<at::Tensor>>> partition_;
  std::unordered_map<const void*, Place> places_;  // by parameter implementation
  std::vector<bool> is_trainable_;
  std::vector<std::vector<at::Tensor>> buckets_;    // by owner, a flat tensor for each of its devices
  std::unique_ptr<zero::SharedParameters> shared_;  // null if every rank has parameters of its own
  std::unique_ptr<torch::optim::Optimizer> full_;
};

}  // namespace cohort
