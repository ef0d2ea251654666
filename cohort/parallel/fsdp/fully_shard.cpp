#include "cohort/parallel/fsdp/fully_shard.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <functional>
#include <map>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "cohort/comm/group/subgroups.h"
#include "cohort/parallel/fsdp/param_group.h"

namespace cohort::fsdp {
namespace {

using torch::nn::Module;

// Modules that are lists of others and have no forward.
void check_has_forward(const Module& module) {
  TORCH_CHECK_VALUE(module.name() != "torch::nn::ModuleListImpl" && module.name() != "torch::nn::ModuleDictImpl",
                    "fully_shard does not support containers that do not implement forward: ", module.name());
}

// `visit` is called for every module below `root` that is sharded on its own, and for `root` and all others with their names.
void walk(const Module& module, const std::string& prefix, std::unordered_set<const Module*>& seen,
          const std::function<bool(const Module&, const std::string&)>& visit) {
  if (!seen.insert(&module).second || !visit(module, prefix)) return;
  for (const auto& child : module.named_children()) walk(*child.value(), prefix + child.key() + ".", seen, visit);
}

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

void check_gathered(const Sharding& sharding, const char* function) {
  TORCH_CHECK_VALUE(sharding.follows_passes(), function,
                    " has no meaning where the ranks share one memory: nothing is scattered there. Give fully_shard "
                    "one_memory = false.");
}

std::vector<Sharding*> shardings_of(const std::vector<ShardedModule*>& modules) {
  std::vector<Sharding*> result;
  for (auto* const module : modules) result.push_back(&module->sharding());
  return result;
}

}  // namespace

ShardedModule::ShardedModule(Module& module, const Options& options)
    : module_((check_has_forward(module), module)),
      sharding_(unclaimed_parameters(module), options, [this] { return nested(); }) {}

ShardedModule::~ShardedModule() = default;

std::vector<Sharding*> ShardedModule::nested() const {
  std::vector<Sharding*> result;
  std::unordered_set<const Module*> seen;
  walk(module_, "", seen, [&](const Module& module, const std::string&) {
    const auto* const inner = dynamic_cast<const ShardedModule*>(&module);
    if (inner) result.push_back(&const_cast<ShardedModule*>(inner)->sharding_);
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
  add(sharding_);
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

std::vector<Sharding*> ShardedModule::shardings(bool recurse) {
  auto all = recurse ? nested() : std::vector<Sharding*>();
  all.push_back(&sharding_);
  return all;
}

// As in PyTorch, of both reductions.
void ShardedModule::set_requires_gradient_sync(bool value, bool recurse) {
  for (auto* const sharding : shardings(recurse)) {
    sharding->settings().requires_gradient_sync = value;
    sharding->settings().requires_all_reduce = value;
  }
}

void ShardedModule::set_requires_all_reduce(bool value, bool recurse) {
  for (auto* const sharding : shardings(recurse)) sharding->settings().requires_all_reduce = value;
}

void ShardedModule::set_reshard_after_forward(bool value, bool recurse) {
  for (auto* const sharding : shardings(recurse)) sharding->settings().reshard_after_forward = value;
}

void ShardedModule::set_reshard_after_backward(bool value, bool recurse) {
  for (auto* const sharding : shardings(recurse)) sharding->settings().reshard_after_backward = value;
}

void ShardedModule::set_reduce_scatter_unused_params(bool value, bool recurse) {
  for (auto* const sharding : shardings(recurse)) sharding->settings().reduce_scatter_unused_params = value;
}

void ShardedModule::set_separate_reduce_scatter_group(bool enable, bool recurse) {
  std::map<c10d::ProcessGroup*, Group> made;  // one for all calls on the same ranks
  for (auto* const sharding : shardings(recurse)) {
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
  for (auto* const sharding : module.shardings(/*recurse=*/true)) {
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

void ShardedModule::set_all_reduce_hook(std::function<void(const at::Tensor&)> hook,
                                        std::optional<c10::Stream> stream) {
  check_gathered(sharding_, "set_all_reduce_hook");
  TORCH_CHECK_VALUE(!stream || !sharding_.replica_group(), "stream cannot be set when using native HSDP");
  settings().all_reduce_hook = std::move(hook);
  settings().all_reduce_hook_stream = SideStream(stream);
}

void ShardedModule::set_custom_all_gather(std::shared_ptr<AllGather> comm) {
  TORCH_CHECK_VALUE(comm, "set_custom_all_gather needs an AllGather");
  settings().all_gather = std::move(comm);
}

void ShardedModule::set_custom_reduce_scatter(std::shared_ptr<ReduceScatter> comm) {
  TORCH_CHECK_VALUE(comm, "set_custom_reduce_scatter needs a ReduceScatter");
  check_gathered(sharding_, "set_custom_reduce_scatter");
  settings().reduce_scatter = std::move(comm);
}

void ShardedModule::set_allocate_memory_from_process_group_for_comm(bool enable) {
  auto& comms = settings();
  const auto& group = sharding_.process_group();
  comms.all_gather = enable ? std::make_shared<ProcessGroupAlloc<AllGather>>(group) : std::make_shared<AllGather>();
  comms.reduce_scatter =
      enable ? std::make_shared<ProcessGroupAlloc<ReduceScatter>>(group) : std::make_shared<ReduceScatter>();
}

void ShardedModule::set_modules_to_forward_prefetch(const std::vector<ShardedModule*>& modules) {
  sharding_.set_forward_prefetch(shardings_of(modules));
}

void ShardedModule::set_modules_to_backward_prefetch(const std::vector<ShardedModule*>& modules) {
  sharding_.set_backward_prefetch(shardings_of(modules));
}

void share_comm_ctx(const std::vector<ShardedModule*>& modules) {
  for (auto* const module : modules) module->sharding().share_comm_ctx(modules.front()->sharding());
}

void ShardedModule::write(const Writer& writer) {
  std::unordered_map<const void*, std::string> names;
  for (const auto& entry : module_.named_parameters()) names.emplace(entry.value().unsafeGetTensorImpl(), entry.key());
  for (auto* const sharding : shardings(/*recurse=*/true)) {
    std::unordered_map<std::string, std::string> outer_names;
    for (const auto& parameter : sharding->sharded_parameters()) {
      outer_names.emplace(parameter.name, names.at(parameter.full.unsafeGetTensorImpl()));
    }
    sharding->write([&](const std::string& name, const at::Tensor& full) { writer(outer_names.at(name), full); });
  }
}

}  // namespace cohort::fsdp
