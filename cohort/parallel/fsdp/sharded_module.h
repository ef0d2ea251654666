/// ShardedModule: a module that fully_shard has been called on, whatever its type: how an outer module finds it, and what can be
/// set of it. FullySharded (fully_shard.h) is the wrapper that can be called.
///
/// Names and semantics follow FSDPModule of torch/distributed/fsdp/_fully_shard/_fully_shard.py. What is set of a module that
/// shares its parameters' group with others (a list of modules) is set for all of these.
///
/// Collective: construction, unshard(), write(), set_separate_reduce_scatter_group(). Thread-safety: as torch::nn::Module.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/fsdp/module_sharding.h"
#include "cohort/parallel/fsdp/sharding.h"

namespace cohort::fsdp {

/// What an outer module finds inner ones by, whatever the type of their modules.
class COHORT_API ShardedModule {
 public:
  /// Shards what `module` has and inner ones of it have not. `module` must outlive this.
  ShardedModule(torch::nn::Module& module, const Options& options);
  /// `module` is the one of this number among those that share it.
  ShardedModule(torch::nn::Module& module, ModuleShare share);
  virtual ~ShardedModule();

  /// The only one, unless shard_placement_fn gives parameters meshes of their own: then that of the first parameter's.
  Sharding& sharding() const { return *shardings().front(); }
  /// One for each mesh that parameters have.
  const std::vector<std::unique_ptr<Sharding>>& shardings() const { return share_.sharding->shardings(); }

  /// By its own name each of the module's parameters, once: as this rank's shard, if it has been sharded.
  torch::OrderedDict<std::string, at::Tensor> named_shards(bool recurse) const;

  // As the functions of FSDPModule with these names; see group_settings.h and sharding.h. `recurse`: nested ones, too.
  void set_requires_gradient_sync(bool value, bool recurse = true);
  void set_requires_all_reduce(bool value, bool recurse = true);
  void set_reshard_after_forward(bool value, bool recurse = true);
  void set_reshard_after_backward(bool value, bool recurse = true);
  void set_reduce_scatter_unused_params(bool value, bool recurse = true);
  void set_separate_reduce_scatter_group(bool enable = true, bool recurse = true);
  void set_reduce_scatter_max_input_buffers(int max_input_buffers) {
    sharding().set_reduce_scatter_max_input_buffers(max_input_buffers);
  }
  void set_gradient_divide_factor(double factor);
  void set_force_sum_reduction_for_comms(bool enable);
  void set_unshard_in_backward(bool value);
  /// Throws c10::ValueError for a stream where there are replicas: their all-reduce has one; and in one memory, where sums have
  /// a way of their own.
  void set_all_reduce_hook(const std::function<void(const at::Tensor& reduce_output)>& hook,
                           std::optional<c10::Stream> stream = std::nullopt);
  /// Throw c10::ValueError for null. In one memory there is nothing to gather; for reductions it is an error.
  void set_custom_all_gather(std::shared_ptr<AllGather> comm);
  void set_custom_reduce_scatter(std::shared_ptr<ReduceScatter> comm);
  /// Buffers of collectives in memory of the process group's own. Throws c10::Error after set_custom_all_gather or
  /// set_custom_reduce_scatter, and the next one, too.
  void set_allocate_memory_from_process_group_for_comm(bool enable);
  /// In memory that its ranks know of each other: on the CPU what backend "shm" maps, so that collectives work where the buffers
  /// lie. With one memory it changes nothing. Throws c10::Error where the group has none, as on Gloo.
  void set_symm_mem_for_comm();
  void set_modules_to_forward_prefetch(const std::vector<ShardedModule*>& modules);
  void set_modules_to_backward_prefetch(const std::vector<ShardedModule*>& modules);
  void set_is_last_backward(bool value) { sharding().set_is_last_backward(value); }
  void set_post_optim_event(c10::Event event) { sharding().set_post_optim_event(std::move(event)); }
  void reset_iter_state() { sharding().reset_iter_state(); }
  /// Not of nested ones.
  UnshardHandle unshard(bool async_op = false);
  void reshard();
  /// Sharding::write, nested ones included, by the names that the parameters have here. Of modules that share a group, only for
  /// parameters of this one.
  void write(const Writer& writer);

 protected:
  const ModuleShare& share() const { return share_; }

 private:
  friend class NoSync;
  std::vector<Sharding*> nested() const;
  /// Nested ones, if asked for, and this one's own.
  std::vector<Sharding*> all_shardings(bool recurse);
  /// `set` is called with the settings of each.
  void set_each(bool recurse, const std::function<void(GroupSettings&)>& set);

  torch::nn::Module& module_;
  ModuleShare share_;
};

/// The parameters of `module` that no call of fully_shard on a module inside of it has taken.
std::vector<NamedParameter> unclaimed_parameters(const torch::nn::Module& module);

/// As share_comm_ctx of PyTorch: several roots, such as the stages of a pipeline, share streams. Before their first forward.
COHORT_API void share_comm_ctx(const std::vector<ShardedModule*>& modules);

/// While it lives, backward leaves gradients whole and on their rank. Afterwards all is as it was before.
class COHORT_API NoSync {
 public:
  explicit NoSync(ShardedModule& module);
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;
  ~NoSync();

 private:
  struct Before {
    std::weak_ptr<ParamGroup> group;
    bool requires_gradient_sync;
    bool requires_all_reduce;
  };
  std::vector<Before> before_;
};

}  // namespace cohort::fsdp
