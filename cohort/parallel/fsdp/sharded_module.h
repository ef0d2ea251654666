/// ShardedModule: a module on which fully_shard has been called, whatever its type: lets an outer module find it, and has its
/// settings. FullySharded (fully_shard.h) is the wrapper that can be called.
///
/// Names and semantics follow FSDPModule of torch/distributed/fsdp/_fully_shard/_fully_shard.py. Modules that share a group of
/// parameters (a list of modules) share their settings.
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

/// The type by which an outer module finds inner ones, whatever the type of their modules.
class COHORT_API ShardedModule {
 public:
  /// Shards the parameters of `module` that inner modules have not sharded. `module` must outlive this.
  ShardedModule(torch::nn::Module& module, const Options& options);
  /// `module` has this number among the modules that share it.
  ShardedModule(torch::nn::Module& module, ModuleShare share);
  virtual ~ShardedModule();

  /// The only sharding, unless shard_placement_fn gives parameters meshes of their own: then that of the first parameter's mesh.
  Sharding& sharding() const { return *shardings().front(); }
  /// One for each mesh of the parameters.
  const std::vector<std::unique_ptr<Sharding>>& shardings() const { return share_.sharding->shardings(); }

  /// Each of the module's parameters, once, by its own name: this rank's shard if the parameter has been sharded.
  torch::OrderedDict<std::string, at::Tensor> named_shards(bool recurse) const;

  // As the functions of FSDPModule with these names; see group_settings.h and sharding.h. `recurse`: also set it for nested ones.
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
  /// Throws c10::ValueError for a stream if there are replicas, whose all-reduce has its own stream; and if ranks share the
  /// parameters, since their sums are computed differently.
  void set_all_reduce_hook(const std::function<void(const at::Tensor& reduce_output)>& hook,
                           std::optional<c10::Stream> stream = std::nullopt);
  /// Throw c10::ValueError for null. If ranks share the parameters, nothing is gathered, and a custom reduce-scatter is an error.
  void set_custom_all_gather(std::shared_ptr<AllGather> comm);
  void set_custom_reduce_scatter(std::shared_ptr<ReduceScatter> comm);
  /// Allocates buffers of collectives in the process group's own memory. Throws c10::Error after set_custom_all_gather or
  /// set_custom_reduce_scatter, as the next function does.
  void set_allocate_memory_from_process_group_for_comm(bool enable);
  /// Allocates buffers in memory that the ranks know of each other: on the CPU memory that backend "shm" maps, so that
  /// collectives work in place. If ranks share the parameters, it changes nothing. Throws c10::Error if the group has no such
  /// memory, as on Gloo.
  void set_symm_mem_for_comm();
  void set_modules_to_forward_prefetch(const std::vector<ShardedModule*>& modules);
  void set_modules_to_backward_prefetch(const std::vector<ShardedModule*>& modules);
  void set_is_last_backward(bool value) { sharding().set_is_last_backward(value); }
  void set_post_optim_event(c10::Event event) { sharding().set_post_optim_event(std::move(event)); }
  void reset_iter_state() { sharding().reset_iter_state(); }
  /// Excludes nested ones.
  UnshardHandle unshard(bool async_op = false);
  void reshard();
  /// As Sharding::write, nested ones included, with the names that the parameters have here. For modules that share a group,
  /// writes only the parameters of this one.
  void write(const Writer& writer);

 protected:
  const ModuleShare& share() const { return share_; }

 private:
  friend class NoSync;
  std::vector<Sharding*> nested() const;
  /// The nested ones, if `recurse`, and this one's own.
  std::vector<Sharding*> all_shardings(bool recurse);
  /// Calls `set` with the settings of each.
  void set_each(bool recurse, const std::function<void(GroupSettings&)>& set);

  torch::nn::Module& module_;
  ModuleShare share_;
};

/// Returns the parameters of `module` that no call of fully_shard on a module inside it has taken.
std::vector<NamedParameter> unclaimed_parameters(const torch::nn::Module& module);

/// As share_comm_ctx of PyTorch: makes several roots, such as the stages of a pipeline, share streams. Call it before their first
/// forward.
COHORT_API void share_comm_ctx(const std::vector<ShardedModule*>& modules);

/// While it lives, backward leaves gradients unsharded and on their rank. Its destructor restores the settings.
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
