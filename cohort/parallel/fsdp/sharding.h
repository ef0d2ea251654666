/// Sharding: one call of fully_shard, for any program: it works on tensors, not modules. FullySharded (fully_shard.h) is the
/// wrapper for modules.
///
///     fsdp::Sharding sharding({{"weight", weight}, {"bias", bias}});
///     torch::optim::AdamW optimizer(sharding.parameters());
///     {
///       auto pass = sharding.forward();                 // while it lives, the full parameters can be read
///       loss = loss_of(weight, bias, batch);
///       pass.outputs({loss});
///     }
///     loss.backward();                                  // shards get their gradients, averaged over the ranks
///     optimizer.step();
///
/// If all ranks share memory, the full parameters exist once (host_param_group.h): no rank waits during a pass; ranks meet at the
/// end of backward and before the next forward. Otherwise they are gathered before forward and before backward
/// (gathered_param_group.h). Then forward must be told its outputs, and should be told its inputs: with `x = pass.inputs({x})[0]`
/// before x is used, gradients are reduced as soon as all are there.
///
/// The first forward decides which of several nested shardings is the root: the one that begins first, as in
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

/// The result of unshard(async_op = true). The next forward pass waits by itself.
class COHORT_API UnshardHandle {
 public:
  UnshardHandle() = default;
  explicit UnshardHandle(const std::weak_ptr<ParamGroup>& group) : groups_({group}) {}
  /// Also waits for what `other` waits for.
  void add(const UnshardHandle& other) { groups_.insert(groups_.end(), other.groups_.begin(), other.groups_.end()); }
  /// Waits until the full parameters are there.
  void wait();

 private:
  std::vector<std::weak_ptr<ParamGroup>> groups_;
};

/// The modules whose parameters a sharding has. A program without modules counts as one.
struct ModulesOfCall {
  /// Each begins a forward pass of its own; parameters are freed when all have run. Several modules cannot be the root.
  std::vector<std::string> names = {};
  /// Each mesh of their parameters has a sharding.
  size_t num_meshes = 1;
  /// An error that this rank has already found in them.
  std::exception_ptr refusal = {};
};

class COHORT_API Sharding {
 public:
  /// `find_nested`: returns the shardings of inner modules; called once, when this one is found to be the root; may be empty.
  /// Throws c10::Error if the ranks' parameters or options differ; c10::ValueError for parameters on several devices, and for a
  /// parameter that already has a sharding; c10::NotImplementedError for parameters with gaps. If only some ranks have such
  /// parameters, the others throw a c10::Error that says so.
  Sharding(const std::vector<NamedParameter>& parameters, const Options& options = {},
           std::function<std::vector<Sharding*>()> find_nested = {}, const ModulesOfCall& modules = {});
  ~Sharding();
  Sharding(const Sharding&) = delete;
  Sharding& operator=(const Sharding&) = delete;

  /// A forward pass, as long as it lives.
  class COHORT_API Forward {
   public:
    /// `module`: the number of the running module among ModulesOfCall::names.
    explicit Forward(Sharding& sharding, size_t module = 0);
    ~Forward();
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;

    /// Returns the same tensors, to be used instead of `inputs`. Call it once, before anything is computed.
    std::vector<at::Tensor> inputs(std::vector<at::Tensor> inputs);
    /// Takes the tensors from which the loss will be computed. Call it once, at the end: it frees the full parameters.
    void outputs(const std::vector<at::Tensor>& outputs);

   private:
    void end();

    Sharding& sharding_;
    size_t module_;
    int num_exceptions_;
    bool is_outermost_ = false;
    bool is_over_ = false;
  };
  /// Throws c10::DistBackendError with the rank that is lost or does something else.
  [[nodiscard]] Forward forward(size_t module = 0) { return Forward(*this, module); }
  /// If false, Forward need not be told inputs and outputs.
  bool follows_passes() const;

  /// The parameters for an optimizer: this rank's shards, in the order of the constructor's list. If you write to them in another
  /// way, do so after a backward pass or a reshard(): full parameters that are still there would be out of date.
  std::vector<at::Tensor> parameters() const;
  /// The same with all their details.
  const std::vector<ShardedParameter>& sharded_parameters() const;
  /// The ranks that share the parameters.
  const Group& process_group() const { return process_group_; }
  /// The ranks that have the same shards as this one; null if there are none.
  const Group& replica_group() const { return replica_group_; }
  const MixedPrecisionPolicy& mp_policy() const { return mp_policy_; }
  /// The device on which modules compute.
  c10::Device device() const { return device_; }

  GroupSettings& settings();
  const GroupSettings& settings() const;
  /// As FSDPModule.set_gradient_divide_factor. Throws c10::ValueError unless positive.
  void set_gradient_divide_factor(double factor);

  /// Gather the full parameters, and free them. If ranks share the parameters, they are always there: unshard() makes the ranks
  /// meet, so that everybody reads what all have written.
  UnshardHandle unshard(bool async_op = false);
  void reshard();
  /// `other` has the parameters of the same module on another mesh: if this is the root, `other` is too. It must live as long as
  /// this.
  void add_sibling(Sharding& other) { siblings_.push_back(&other); }
  /// Sets the shardings to gather while forward, or backward, of this one runs. They must live as long as this.
  void set_forward_prefetch(std::vector<Sharding*> shardings) { forward_prefetch_ = std::move(shardings); }
  void set_backward_prefetch(std::vector<Sharding*> shardings) { backward_prefetch_ = std::move(shardings); }

  /// Of the root: see FSDPModule's functions with these names.
  void set_is_last_backward(bool value);
  void set_post_optim_event(c10::Event event);
  void reset_iter_state();
  /// Shares streams, and the limit of reductions in flight, with `other`, of another root. Call it before the first forward.
  void share_comm_ctx(Sharding& other);
  /// The number of reductions of the root that may be in flight at once. Throws c10::ValueError for less than 1.
  void set_reduce_scatter_max_input_buffers(int max_input_buffers);

  /// Collective. Rank 0 alone calls `writer` for every full parameter, to initialize or load it; this is the only way to write
  /// them. If `writer` throws, all ranks throw its text.
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
  std::vector<std::string> modules_;  ///< whose parameters this has
  std::shared_ptr<RootPass> root_;    ///< null before the first forward
  bool is_last_backward_ = true;
  std::shared_ptr<c10::Event> post_optim_event_;
  std::vector<Sharding*> siblings_;
  std::vector<Sharding*> forward_prefetch_;
  std::vector<Sharding*> backward_prefetch_;
};

}  // namespace cohort::fsdp
