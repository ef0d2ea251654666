/// ZeroRedundancyOptimizer: any optimizer of LibTorch but LBFGS, whose state is divided among the ranks (ZeRO, stage 1:
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
/// It is a torch::optim::Optimizer: learning-rate schedulers and whatever else changes the options of param_groups() reach the
/// local optimizer in the next step. Its own state() is empty; the owned part is in optim().
///
/// Every rank must have equal parameters at the start, and gradients that DistributedDataParallel has made equal: only the
/// owner's count. Thread-safety: none.
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
  /// Null: the default group.
  Group process_group = {};
  /// The parameters of each owner become views of one tensor, which is broadcast at once; else each is broadcast by itself.
  bool parameters_as_bucket_view = false;
  /// Parameters are updated while backward runs, by a hook (ddp_zero_hook.h); step() does nothing, and
  /// parameters_as_bucket_view is ignored.
  bool overlap_with_ddp = false;
  /// Where the ranks share memory (on the CPU, on one host) they have the parameters once, all of them together: step() sends
  /// nothing, the ranks only wait for each other, and a host needs 1 / N of the memory for parameters. A parameter can be
  /// written by its owner's optimizer only; a write by anybody else, such as load_state_dict of the module, is SIGSEGV with a
  /// text, also after this object has gone. So load first, construct DistributedDataParallel first, and then this. Elsewhere it
  /// changes nothing. parameters_as_bucket_view is ignored.
  bool one_memory = false;
};

namespace zero {
class OverlappedStep;
class SharedParameters;
}  // namespace zero

class COHORT_API ZeroRedundancyOptimizer final : public torch::optim::Optimizer, public Joinable {
 public:
  using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;
  /// Makes an optimizer over groups, of which some or all may be empty. Groups without options have its defaults.
  using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(ParamGroups)>;

  /// Every rank of the group must give the same parameters, groups and options.
  /// Throws c10::ValueError for no parameters, sparse ones, several dtypes or kinds of device, a parameter listed twice
  /// (PyTorch's texts), on a rank outside the group, for one_memory with overlap_with_ddp, and for too little memory.
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

  /// Collective: updates this rank's parameters by the local optimizer, which is given `closure`, and broadcasts all.
  /// Returns the local optimizer's loss. With overlap_with_ddp it warns and returns an undefined tensor.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// To be called on all ranks. Owners stay as they are. Throws as the constructor. (The base class's own function works too:
  /// its groups are taken over in the next step.)
  void add_param_group(const torch::optim::OptimizerParamGroup& param_group);

  /// Collective: gives the state of all parameters to rank `to` of the group, in the host's memory.
  void consolidate_state_dict(int to = 0);
  /// An optimizer of the wrapped kind over all parameters, in the order of param_groups(): their options now, and their state
  /// when it was consolidated. As good as one that was never divided, for torch::save and checkpoint::save_checkpoint. It lives
  /// until the next consolidate_state_dict or add_param_group.
  /// Throws c10::Error on a rank that has not been given the state (PyTorch's text).
  torch::optim::Optimizer& state_dict() const;
  /// Takes over the options, and this rank's part of the state: deep copies. Parameters are known by their places in the groups,
  /// so that `whole` may be of another number of ranks, or over another model. Those without a state have none afterwards.
  /// Throws c10::TypeError for another kind of optimizer, c10::ValueError for other groups (PyTorch's texts).
  void load_state_dict(const torch::optim::Optimizer& whole);
  /// One to read a checkpoint into, for load_state_dict: of the wrapped kind, over all parameters, without their state.
  std::unique_ptr<torch::optim::Optimizer> whole_optimizer() const;

  /// torch::save and torch::load of this object: state_dict() and load_state_dict(), the file as of an undivided optimizer.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  /// The local optimizer, over the parameters of this rank. Its options may be those of an earlier step.
  torch::optim::Optimizer& optim() const { return *local_; }
  /// [rank][group]: who owns what.
  const std::vector<std::vector<std::vector<at::Tensor>>>& partition() const { return partition_; }

  /// The hook makes a step(). "Gradients must be properly set before": those of a rank whose data has ended are otherwise those
  /// of its last step. With overlap_with_ddp they come from the reduction; DistributedDataParallel is then the first in the Join.
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
  // On rank `to` those of each rank, elsewhere nothing.
  std::vector<std::string> gather_bytes(std::string own, int to) const;
  // Updates these by the local optimizer, all of them its own, as if these were their gradients.
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
  std::unordered_map<const void*, Place> places_;  // of parameters, by their implementation
  std::vector<bool> is_trainable_;
  std::vector<std::vector<at::Tensor>> buckets_;    // by owner, a flat tensor for each of its devices
  std::unique_ptr<zero::SharedParameters> shared_;  // null: every rank has parameters of its own
  std::unique_ptr<torch::optim::Optimizer> whole_;
};

}  // namespace cohort
