#include "cohort/parallel/fsdp/module_sharding.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "cohort/parallel/fsdp/sharded_module.h"
#include "cohort/parallel/fsdp/tensors/mesh_groups.h"

namespace cohort::fsdp {
namespace {

using torch::nn::Module;

// Refuses modules that are lists of others and have no forward.
void check_has_forward(const Module& module) {
  TORCH_CHECK_VALUE(module.name() != "torch::nn::ModuleListImpl" && module.name() != "torch::nn::ModuleDictImpl",
                    "fully_shard does not support containers that do not implement forward: ", module.name());
}

void check_modules(const std::vector<Module*>& modules) {
  TORCH_CHECK_VALUE(!modules.empty(), "[cohort] fully_shard got a list without modules");
  for (const auto* const module : modules) {
    check_has_forward(*module);
    const auto inner = module->modules(/*include_self=*/false);
    for (const auto* const other : modules) {
      const bool is_inner =
          std::any_of(inner.begin(), inner.end(), [&](const auto& each) { return each.get() == other; });
      TORCH_CHECK_VALUE(!is_inner, "[cohort] fully_shard got a list of modules in which ", other->name(),
                        " is a part of ", module->name(), ": give it the outer one alone");
      TORCH_CHECK_VALUE(std::count(modules.begin(), modules.end(), other) == 1,
                        "[cohort] fully_shard got a list of modules with ", other->name(), " twice");
    }
  }
}

// The parameters of one mesh; meshes are in the order in which they first occur.
struct OfMesh {
  Options options;
  MeshGroups groups;
  std::vector<NamedParameter> parameters;
};

bool is_listed(const at::Tensor& tensor, const std::vector<at::Tensor>& list) {
  return std::any_of(list.begin(), list.end(), [&](const at::Tensor& other) { return other.is_same(tensor); });
}

std::vector<OfMesh> by_mesh(const std::vector<NamedParameter>& parameters, const Options& options) {
  auto own = options;
  if (options.mesh && options.dp_mesh_dims) {
    own.mesh = data_parallel_mesh(*options.mesh, *options.dp_mesh_dims);
    own.dp_mesh_dims = {};
  }
  const auto own_groups = groups_of(own);
  std::vector<OfMesh> result;
  for (const auto& parameter : parameters) {
    if (is_listed(parameter.tensor, options.ignored_params)) continue;
    const auto mesh = options.shard_placement_fn ? options.shard_placement_fn(parameter.tensor).mesh : std::nullopt;
    const auto groups = mesh ? groups_of(*mesh) : own_groups;
    auto found = std::find_if(result.begin(), result.end(), [&](const OfMesh& each) { return each.groups == groups; });
    if (found == result.end()) {
      found = result.insert(result.end(), OfMesh{own, groups, {}});
      if (mesh) found->options.mesh = mesh;
      if (mesh) found->options.process_group = {};
    }
    found->parameters.push_back(parameter);
  }
  if (result.empty()) result.push_back({own, own_groups, {}});
  return result;
}

}  // namespace

ModuleSharding::ModuleSharding(const std::vector<Module*>& modules, const Options& options,
                               const std::function<std::vector<Sharding*>()>& find_nested) {
  ModulesOfCall call;
  std::vector<NamedParameter> parameters;
  std::vector<OfMesh> parts;
  try {
    check_modules(modules);
    for (size_t i = 0; i < modules.size(); ++i) {
      call.names.push_back(modules[i]->name());
      for (auto& parameter : unclaimed_parameters(*modules[i])) {
        if (modules.size() > 1) parameter.name = fmt::format("{}.{}", i, parameter.name);
        parameters.push_back(std::move(parameter));
      }
    }
    parts = by_mesh(parameters, options);
  } catch (...) {  // the first sharding tells the other ranks
    call.refusal = std::current_exception();
    parts = {{options, {}, {}}};
  }
  call.num_meshes = parts.size();
  for (auto& part : parts) {
    shardings_.push_back(std::make_unique<Sharding>(std::move(part.parameters), part.options, find_nested, call));
  }
  for (size_t i = 1; i < shardings_.size(); ++i) shardings_.front()->add_sibling(*shardings_[i]);
}

bool ModuleSharding::follows_passes() const {
  return std::any_of(shardings_.begin(), shardings_.end(), [](const auto& each) { return each->follows_passes(); });
}

ModuleForward::ModuleForward(const ModuleShare& share) {
  for (const auto& sharding : share.sharding->shardings()) {
    passes_.push_back(std::make_unique<Sharding::Forward>(*sharding, share.module));
  }
}

// Destroys the passes last to first: the first is the outermost one.
ModuleForward::~ModuleForward() {
  while (!passes_.empty()) passes_.pop_back();
}

std::vector<at::Tensor> ModuleForward::inputs(std::vector<at::Tensor> inputs) {
  for (const auto& pass : passes_) inputs = pass->inputs(std::move(inputs));
  return inputs;
}

void ModuleForward::outputs(const std::vector<at::Tensor>& outputs) {
  for (auto pass = passes_.rbegin(); pass != passes_.rend(); ++pass) (*pass)->outputs(outputs);
}

}  // namespace cohort::fsdp
