#include "cohort/parallel/fsdp/sharded_module.h"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "cohort/comm/group/subgroups.h"
#include "cohort/parallel/fsdp/groups/param_group.h"

namespace cohort::fsdp {
namespace {

using torch::nn::Module;

// Calls `visit` for every module below `root` that is sharded on its own, and for `root` and all others with their names.
void walk(const Module& module, const std::string& prefix, std::unordered_set<const Module*>& seen,
          const std::function<bool(const Module&, const std::string&)>& visit) {
  if (!seen.insert(&module).second || !visit(module, prefix)) return;
  for (const auto& child : module.named_children()) walk(*child.value(), prefix + child.key() + ".", seen, visit);
}

void check_gathered(const Sharding& sharding, const char* function) {
  TORCH_CHECK_VALUE(sharding.follows_passes(), "[cohort] ", function,
                    " has no effect if the ranks share the parameters in memory, since nothing is scattered. Give "
                    "fully_shard one_memory = false.");
}

// Custom collectives of the program have their own memory.
template <template <class> class Alloc>
void check_not_custom(const GroupSettings& comms, const char* function) {
  const auto& gather = *comms.all_gather;
  const auto& scatter = *comms.reduce_scatter;
  TORCH_CHECK(typeid(gather) == typeid(AllGather) || typeid(gather) == typeid(Alloc<AllGather>), "cannot call ",
              function, "() when all gather comm is custom: ", c10::demangle(typeid(gather).name()));
  TORCH_CHECK(typeid(scatter) == typeid(ReduceScatter) || typeid(scatter) == typeid(Alloc<ReduceScatter>),
              "cannot call ", function,
              "() when reduce scatter comm is custom: ", c10::demangle(typeid(scatter).name()));
}

std::vector<Sharding*> shardings_of(const std::vector<ShardedModule*>& modules) {
  std::vector<Sharding*> result;
  for (auto* const module : modules) {
    for (const auto& sharding : module->shardings()) result.push_back(sharding.get());
  }
  return result;
}

}  // namespace

std::vector<NamedParameter> unclaimed_parameters(const Module& root) {
  std::vector<NamedParameter> result;
  std::unordered_set<const Module*> seen;
  walk(root, "", seen, [&](const Module& module, const std::string& prefix) {
    if (&module != &root && dynamic_cast<const ShardedModule*>(&module)) return false;
    for (const auto& entry : module.named_parameters(/*recurse=*/false)) {
      result.push_back({prefix + entry.key(), entry.value()});
    }
    return true;
  });
  return result;
}

ShardedModule::ShardedModule(Module& module, const Options& options)
    : module_(module), share_{std::make_shared<ModuleSharding>(std::vector<Module*>{&module}, options, [this] {
        return nested();
      })} {}

ShardedModule::ShardedModule(Module& module, ModuleShare share) : module_(module), share_(std::move(share)) {}

ShardedModule::~ShardedModule() = default;

std::vector<Sharding*> ShardedModule::nested() const {
  std::vector<Sharding*> result;
  std::unordered_set<const Module*> seen;
  walk(module_, "", seen, [&](const Module& module, const std::string&) {
    const auto* const inner = dynamic_cast<const ShardedModule*>(&module);
    if (!inner) return true;
    for (const auto& sharding : inner->shardings()) {  // other modules may share them
      const bool is_known = std::find(result.begin(), result.end(), sharding.get()) != result.end();
      if (!is_known) result.push_back(sharding.get());
    }
    return true;
  });
  return result;
}

torch::OrderedDict<std::string, at::Tensor> ShardedModule::named_shards(bool recurse) const {
  std::unordered_map<const void*, at::Tensor> shards;
  const auto add = [&](const Sharding& sharding) {
    for (const auto& parameter : sharding.sharded_parameters()) {
      shards.emplace(parameter.full.unsafeGetTensorImpl(), parameter.shard);
    }
  };
  for (const auto& own : shardings()) add(*own);
  for (const auto* const inner : nested()) add(*inner);
  torch::OrderedDict<std::string, at::Tensor> result;
  std::unordered_set<const void*> seen;
  for (const auto& entry : module_.named_parameters(recurse)) {
    const auto* const key = entry.value().unsafeGetTensorImpl();
    if (!seen.insert(key).second) continue;
    const auto found = shards.find(key);
    result.insert(entry.key(), found == shards.end() ? entry.value() : found->second);
  }
  return result;
}

std::vector<Sharding*> ShardedModule::all_shardings(bool recurse) {
  auto all = recurse ? nested() : std::vector<Sharding*>();
  for (const auto& own : shardings()) all.push_back(own.get());
  return all;
}

void ShardedModule::set_each(bool recurse, const std::function<void(GroupSettings&)>& set) {
  for (auto* const sharding : all_shardings(recurse)) set(sharding->settings());
}

// Sets both reductions, as in PyTorch.
void ShardedModule::set_requires_gradient_sync(bool value, bool recurse) {
  set_each(recurse, [&](GroupSettings& settings) {
    settings.requires_gradient_sync = value;
    settings.requires_all_reduce = value;
  });
}

void ShardedModule::set_requires_all_reduce(bool value, bool recurse) {
  set_each(recurse, [&](GroupSettings& settings) { settings.requires_all_reduce = value; });
}

void ShardedModule::set_reshard_after_forward(bool value, bool recurse) {
  set_each(recurse, [&](GroupSettings& settings) { settings.reshard_after_forward = value; });
}

void ShardedModule::set_reshard_after_backward(bool value, bool recurse) {
  set_each(recurse, [&](GroupSettings& settings) { settings.reshard_after_backward = value; });
}

void ShardedModule::set_reduce_scatter_unused_params(bool value, bool recurse) {
  set_each(recurse, [&](GroupSettings& settings) { settings.reduce_scatter_unused_params = value; });
}

void ShardedModule::set_gradient_divide_factor(double factor) {
  for (const auto& own : shardings()) own->set_gradient_divide_factor(factor);
}

void ShardedModule::set_force_sum_reduction_for_comms(bool enable) {
  set_each(/*recurse=*/false, [&](GroupSettings& settings) { settings.force_sum_reduction_for_comms = enable; });
}

void ShardedModule::set_unshard_in_backward(bool value) {
  set_each(/*recurse=*/false, [&](GroupSettings& settings) { settings.unshard_in_backward = value; });
}

void ShardedModule::set_separate_reduce_scatter_group(bool enable, bool recurse) {
  std::map<c10d::ProcessGroup*, Group> made;  // one for all calls on the same ranks
  for (auto* const sharding : all_shardings(recurse)) {
    auto& separate = sharding->settings().reduce_scatter_group;
    if (!enable) separate.reset();
    if (!enable || separate) continue;
    const auto& group = sharding->process_group();
    auto& own = made[group.get()];
    if (!own) {
      std::vector<int> ranks(static_cast<size_t>(group->getSize()));
      std::iota(ranks.begin(), ranks.end(), 0);
      own = split_group(group, {ranks}, {.group_desc = "fsdp_reduce_scatter"});
    }
    separate = own;
  }
}

NoSync::NoSync(ShardedModule& module) {
  for (auto* const sharding : module.all_shardings(/*recurse=*/true)) {
    const auto& settings = sharding->settings();
    before_.push_back({sharding->group_, settings.requires_gradient_sync, settings.requires_all_reduce});
  }
  module.set_requires_gradient_sync(false);
}

NoSync::~NoSync() {
  for (const auto& [weak, requires_gradient_sync, requires_all_reduce] : before_) {
    const auto group = weak.lock();
    if (!group) continue;
    group->settings().requires_gradient_sync = requires_gradient_sync;
    group->settings().requires_all_reduce = requires_all_reduce;
  }
}

void ShardedModule::set_all_reduce_hook(const std::function<void(const at::Tensor&)>& hook,
                                        std::optional<c10::Stream> stream) {
  for (const auto& own : shardings()) {
    check_gathered(*own, "set_all_reduce_hook");
    TORCH_CHECK_VALUE(!stream || !own->replica_group(), "stream cannot be set when using native HSDP");
    own->settings().all_reduce_hook = hook;
    own->settings().all_reduce_hook_stream = SideStream(stream);
  }
}

void ShardedModule::set_custom_all_gather(std::shared_ptr<AllGather> comm) {
  TORCH_CHECK_VALUE(comm, "[cohort] set_custom_all_gather needs an AllGather");
  set_each(/*recurse=*/false, [&](GroupSettings& settings) { settings.all_gather = comm; });
}

void ShardedModule::set_custom_reduce_scatter(std::shared_ptr<ReduceScatter> comm) {
  TORCH_CHECK_VALUE(comm, "[cohort] set_custom_reduce_scatter needs a ReduceScatter");
  for (const auto& own : shardings()) check_gathered(*own, "set_custom_reduce_scatter");
  set_each(/*recurse=*/false, [&](GroupSettings& settings) { settings.reduce_scatter = comm; });
}

void ShardedModule::set_allocate_memory_from_process_group_for_comm(bool enable) {
  for (const auto& own : shardings()) {
    auto& comms = own->settings();
    check_not_custom<ProcessGroupAlloc>(comms, "set_allocate_memory_from_process_group");
    const auto& group = own->process_group();
    comms.all_gather = enable ? std::make_shared<ProcessGroupAlloc<AllGather>>(group) : std::make_shared<AllGather>();
    comms.reduce_scatter =
        enable ? std::make_shared<ProcessGroupAlloc<ReduceScatter>>(group) : std::make_shared<ReduceScatter>();
  }
}

// NCCL's reduce-scatter supports such memory only for sums, as in PyTorch.
void ShardedModule::set_symm_mem_for_comm() {
  for (const auto& own : shardings()) {
    auto& comms = own->settings();
    check_not_custom<SymmMemAlloc>(comms, "set_symm_mem");
    const auto device = own->device();
    comms.all_gather = std::make_shared<SymmMemAlloc<AllGather>>(own->process_group(), device);
    if (!device.is_cpu() && !comms.force_sum_reduction_for_comms) continue;
    const auto& group = comms.reduce_scatter_group ? comms.reduce_scatter_group : own->process_group();
    comms.reduce_scatter = std::make_shared<SymmMemAlloc<ReduceScatter>>(group, device);
  }
}

UnshardHandle ShardedModule::unshard(bool async_op) {
  UnshardHandle all;
  for (const auto& own : shardings()) all.add(own->unshard(/*async_op=*/true));
  if (!async_op) all.wait();
  return all;
}

void ShardedModule::reshard() {
  for (const auto& own : shardings()) own->reshard();
}

void ShardedModule::set_modules_to_forward_prefetch(const std::vector<ShardedModule*>& modules) {
  for (const auto& own : shardings()) own->set_forward_prefetch(shardings_of(modules));
}

void ShardedModule::set_modules_to_backward_prefetch(const std::vector<ShardedModule*>& modules) {
  for (const auto& own : shardings()) own->set_backward_prefetch(shardings_of(modules));
}

void share_comm_ctx(const std::vector<ShardedModule*>& modules) {
  for (auto* const module : modules) module->sharding().share_comm_ctx(modules.front()->sharding());
}

void ShardedModule::write(const Writer& writer) {
  std::unordered_map<const void*, std::string> names;
  for (const auto& entry : module_.named_parameters()) names.emplace(entry.value().unsafeGetTensorImpl(), entry.key());
  for (auto* const sharding : all_shardings(/*recurse=*/true)) {
    std::unordered_map<std::string, std::string> outer_names;
    for (const auto& parameter : sharding->sharded_parameters()) {
      const auto known = names.find(parameter.full.unsafeGetTensorImpl());
      if (known != names.end()) outer_names.emplace(parameter.name, known->second);
    }
    sharding->write([&](const std::string& name, const at::Tensor& full) {
      const auto known = outer_names.find(name);
      if (known != outer_names.end()) writer(known->second, full);
    });
  }
}

}  // namespace cohort::fsdp
