/// Sharding: one call of fully_shard, for any program: it needs tensors, not modules. FullySharded (fully_shard.h) is the wrapper
/// for modules.
///
///     fsdp::Sharding sharding({{"weight", weight}, {"bias", bias}});
///     torch::optim::AdamW optimizer(sharding.parameters());
///     {
///       const auto pass = sharding.forward();           // while it lives, the whole parameters can be read
///       loss = loss_of(weight, bias, batch);
///     }
///     loss.backward();                                  // shards get their gradients, averaged over the ranks
///     optimizer.step();
///
/// The rank whose turn it is never waits in the middle of a pass; ranks meet at the end of backward and before the next forward.
/// Which of several nested ones is the root is settled by the first forward: it is the one that begins first, as in
/// torch/distributed/fsdp/_fully_shard/_fsdp_state.py.
///
/// Collective: construction, a forward after a backward, backward, write(). Thread-safety: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/fsdp/options.h"
#include "cohort/parallel/fsdp/sharded_parameter.h"

namespace cohort::fsdp {

class ParamGroup;
class RootPass;

class COHORT_API Sharding {
 public:
  /// `find_nested`: the shardings of inner modules, asked for once, when this one is found to be the root; may be empty.
  /// Throws c10::Error where the ranks' parameters differ; c10::ValueError for parameters that are not on the CPU, for one that
  /// another sharding has already, and where the ranks share no memory; c10::NotImplementedError for those with gaps.
  Sharding(std::vector<NamedParameter> parameters, const Options& options = {},
           std::function<std::vector<Sharding*>()> find_nested = {});
  ~Sharding();
  Sharding(const Sharding&) = delete;
  Sharding& operator=(const Sharding&) = delete;

  /// A forward pass, as long as it lives.
  class COHORT_API Forward {
   public:
    explicit Forward(Sharding& sharding);
    ~Forward();
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;

   private:
    Sharding& sharding_;
  };
  /// Throws c10::DistBackendError naming the rank that is lost, or does something else.
  [[nodiscard]] Forward forward() { return Forward(*this); }

  /// What an optimizer is to be built on: this rank's shards, in the order of the constructor's list.
  std::vector<at::Tensor> parameters() const;
  /// The same with all there is to know of them.
  const std::vector<ShardedParameter>& sharded_parameters() const;
  const Group& process_group() const { return process_group_; }

  /// As FSDPModule.set_requires_gradient_sync: false, and gradients stay on their rank until a backward pass with true.
  void set_requires_gradient_sync(bool value);
  bool requires_gradient_sync() const;
  /// As FSDPModule.set_gradient_divide_factor. Throws c10::ValueError unless positive.
  void set_gradient_divide_factor(double factor);

  /// Collective. Rank 0 alone calls `writer` for every whole parameter, to initialise or to load it; nobody else can write them.
  /// What an exception of `writer` says, all ranks throw.
  void write(const Writer& writer);

 private:
  friend class RootPass;
  void join_root();

  Group process_group_;
  std::unique_ptr<ParamGroup> group_;
  std::function<std::vector<Sharding*>()> find_nested_;
  std::shared_ptr<RootPass> root_;  ///< null before the first forward
};

}  // namespace cohort::fsdp
