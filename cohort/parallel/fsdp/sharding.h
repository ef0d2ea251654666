/// Sharding: one call of fully_shard, for any program: it needs tensors, not modules. FullySharded (fully_shard.h) is the wrapper
/// for modules.
///
///     fsdp::Sharding sharding({{"weight", weight}, {"bias", bias}});
///     torch::optim::AdamW optimizer(sharding.parameters());
///     {
///       auto pass = sharding.forward();                 // while it lives, the whole parameters can be read
///       loss = loss_of(weight, bias, batch);
///       pass.outputs({loss});
///     }
///     loss.backward();                                  // shards get their gradients, averaged over the ranks
///     optimizer.step();
///
/// Where all ranks share memory, the whole parameters are there once (host_param_group.h): no rank waits in the middle of a
/// pass; ranks meet at the end of backward and before the next forward. Elsewhere they are gathered before forward and before
/// backward (gathered_param_group.h); forward must then be told of what comes out, and should be told of what goes in: with `x
/// = pass.inputs({x})[0]` before x is used, gradients are reduced as soon as all are there.
///
/// Which of several nested ones is the root is settled by the first forward: it is the one that begins first, as in
/// torch/distributed/fsdp/_fully_shard/_fsdp_state.py.
///
/// Collective: construction, forward, backward, unshard(), write(). Thread-safety: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/fsdp/settings/group_settings.h"
#include "cohort/parallel/fsdp/settings/options.h"
#include "cohort/parallel/fsdp/tensors/sharded_parameter.h"

namespace torch::optim {
class Optimizer;
}

namespace cohort::fsdp {

struct CommContext;
struct GroupMemory;
struct MemoryAccount;
class ParamGroup;
class RootPass;

/// What unshard(async_op = true) gives. The next forward pass waits by itself.
class COHORT_API UnshardHandle {
 public:
  UnshardHandle() = default;
  explicit UnshardHandle(const std::weak_ptr<ParamGroup>& group) : groups_({group}) {}
  /// Waits for what `other` waits for, too.
  void add(const UnshardHandle& other) { groups_.insert(groups_.end(), other.groups_.begin(), other.groups_.end()); }
  /// The whole parameters are there when it returns.
  void wait();

 private:
  std::vector<std::weak_ptr<ParamGroup>> groups_;
};

/// The modules whose parameters a sharding has. Programs without modules have one.
struct ModulesOfCall {
  /// Each begins a forward pass of its own; parameters go when all have run. Several cannot be the root.
  std::vector<std::string> names = {};
  /// Each mesh of their parameters has a sharding.
  size_t num_meshes = 1;
  /// What this rank has found wrong with them already.
  std::exception_ptr refusal = {};
};

class COHORT_API Sharding {
 public:
  /// `find_nested`: the shardings of inner modules, asked for once, when this one is found to be the root; may be empty.
  /// Throws c10::Error where the ranks' parameters or options differ; c10::ValueError for parameters on several devices, and for
  /// one that another sharding has already; c10::NotImplementedError for those with gaps. If only some ranks have such
  /// parameters, the others throw c10::Error, which says so.
  Sharding(const std::vector<NamedParameter>& parameters, const Options& options = {},
           std::function<std::vector<Sharding*>()> find_nested = {}, const ModulesOfCall& modules = {});
  ~Sharding();
  Sharding(const Sharding&) = delete;
  Sharding& operator=(const Sharding&) = delete;

  /// A forward pass, as long as it lives.
  class COHORT_API Forward {
   public:
    /// `module`: the number of the one that runs, among ModulesOfCall::names.
    explicit Forward(Sharding& sharding, size_t module = 0);
    ~Forward();
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;

    /// The same tensors, to be used instead of `inputs`. Once, before anything is computed.
    std::vector<at::Tensor> inputs(std::vector<at::Tensor> inputs);
    /// What the loss will be computed from. Once, at the end: it lets the whole parameters go.
    void outputs(const std::vector<at::Tensor>& outputs);

   private:
    void end();

    Sharding& sharding_;
    size_t module_;
    int num_exceptions_;
    bool is_outermost_ = false;
    bool is_over_ = false;
  };
  /// Throws c10::DistBackendError naming the rank that is lost, or does something else.
  [[nodiscard]] Forward forward(size_t module = 0) { return Forward(*this, module); }
  /// False: Forward need not be told of inputs and outputs.
  bool follows_passes() const;

  /// What an optimizer is to be built on: this rank's shards, in the order of the constructor's list. Whoever writes to them
  /// otherwise does so after a backward pass or a reshard(): whole parameters that are still there would be old.
  std::vector<at::Tensor> parameters() const;
  /// The same with all there is to know of them.
  const std::vector<ShardedParameter>& sharded_parameters() const;
  /// The ranks that share the parameters.
  const Group& process_group() const { return process_group_; }
  /// Those that have the same shards as this one; null: none.
  const Group& replica_group() const { return replica_group_; }
  const MixedPrecisionPolicy& mp_policy() const { return mp_policy_; }
  /// Where modules compute.
  c10::Device device() const { return device_; }

  GroupSettings& settings();
  const GroupSettings& settings() const;
  /// As FSDPModule.set_gradient_divide_factor. Throws c10::ValueError unless positive.
  void set_gradient_divide_factor(double factor);

  /// Fetches the whole parameters, and lets them go. With one memory they are always there: the ranks meet, so that everybody
  /// reads what all have written.
  UnshardHandle unshard(bool async_op = false);
  void reshard();
  /// `other` has the parameters of the same module on another mesh: where this is the root, that one is, too. It must live as
  /// long as this.
  void add_sibling(Sharding& other) { siblings_.push_back(&other); }
  /// These are fetched while forward, or backward, of this one runs. They must live as long as this.
  void set_forward_prefetch(std::vector<Sharding*> shardings) { forward_prefetch_ = std::move(shardings); }
  void set_backward_prefetch(std::vector<Sharding*> shardings) { backward_prefetch_ = std::move(shardings); }

  /// Of the whole root: see FSDPModule's functions with these names.
  void set_is_last_backward(bool value);
  void set_post_optim_event(c10::Event event);
  void reset_iter_state();
  /// Streams, and the limit of reductions on their way, are shared with `other`, of another root; before the first forward.
  void share_comm_ctx(Sharding& other);
  /// How many reductions of the root may be on their way at once. Throws c10::ValueError for less than 1.
  void set_reduce_scatter_max_input_buffers(int max_input_buffers);

  /// Collective. Rank 0 alone calls `writer` for every whole parameter, to initialise or to load it; nobody else can write them.
  /// What an exception of `writer` says, all ranks throw.
  void write(const Writer& writer);

 private:
  friend class NoSync;
  friend class RootPass;
  friend MemoryAccount memory_account(const Sharding& sharding, const torch::optim::Optimizer& optimizer);
  GroupMemory memory() const;
  void join_root();
  at::Tensor prepared(const at::Tensor& input, bool is_outermost) const;

  Group process_group_;
  Group replica_group_;
  c10::Device device_ = c10::Device(c10::kCPU);
  MixedPrecisionPolicy mp_policy_;
  std::shared_ptr<ParamGroup> group_;
  std::shared_ptr<CommContext> context_;
  std::function<std::vector<Sharding*>()> find_nested_;
  std::vector<std::string> modules_;  ///< of which this has the parameters
  std::shared_ptr<RootPass> root_;    ///< null before the first forward
  bool is_last_backward_ = true;
  std::shared_ptr<c10::Event> post_optim_event_;
  std::vector<Sharding*> siblings_;
  std::vector<Sharding*> forward_prefetch_;
  std::vector<Sharding*> backward_prefetch_;
};

}  // namespace cohort::fsdp
