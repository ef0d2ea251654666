#include "cohort/parallel/fsdp/sharding.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "cohort/comm/agreement/agreement.h"
#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/group/job_warning.h"
#include "cohort/comm/group/unshared_batches.h"
#include "cohort/comm/watch/unwrapped_training.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/fsdp/gathered/gathered_param_group.h"
#include "cohort/parallel/fsdp/groups/in_autograd.h"
#include "cohort/parallel/fsdp/groups/pass_anchor.h"
#include "cohort/parallel/fsdp/host/host_param_group.h"
#include "cohort/parallel/fsdp/root_pass.h"
#include "cohort/parallel/fsdp/tensors/combined_mesh.h"
#include "cohort/parallel/fsdp/tensors/mesh_groups.h"
#include "cohort/parallel/fsdp/tensors/module_tensor.h"
#include "cohort/parallel/module/sharded_tensors.h"

namespace cohort::fsdp {
namespace {

bool is_ignored(const at::Tensor& tensor, const std::vector<at::Tensor>& ignored) {
  return std::any_of(ignored.begin(), ignored.end(), [&](const at::Tensor& other) { return other.is_same(tensor); });
}

// Returns each parameter once, without ignored ones.
std::vector<NamedParameter> managed(const std::vector<NamedParameter>& parameters, const Options& options) {
  std::vector<NamedParameter> result;
  for (const auto& parameter : parameters) {
    const auto is_known = [&](const NamedParameter& other) { return other.tensor.is_same(parameter.tensor); };
    if (is_ignored(parameter.tensor, options.ignored_params)) continue;
    if (std::none_of(result.begin(), result.end(), is_known)) result.push_back(parameter);
  }
  return result;
}

void check(const NamedParameter& parameter) {
  const auto& tensor = parameter.tensor;
  TORCH_CHECK_VALUE(tensor.dim() > 0, "fully_shard doesn't support scalar parameters. Change ", parameter.name,
                    " to a 1D tensor with numel equal to 1.");
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided && own_shard(tensor).is_contiguous(),
                              "FSDP does not support non-contiguous parameters yet: ", parameter.name,
                              ".shape=", tensor.sizes(), " ", parameter.name, ".stride()=", tensor.strides());
  TORCH_CHECK_VALUE(!parallel::is_of_fully_shard(tensor), "Parameter '", parameter.name,
                    "' is shared with a parameter already managed by another FSDP group. For shared/tied parameters, "
                    "shard the modules that share it by one call, in the same FSDP group.");
}

c10::Device device_of(const std::vector<NamedParameter>& parameters, const Options& options) {
  std::optional<c10::Device> device;
  if (options.mesh) {
    device = c10::Device(options.mesh->device_type());
    if (!device->is_cpu()) device = c10::impl::VirtualGuardImpl(device->type()).getDevice();
  }
  for (const auto& parameter : parameters) {
    const auto place = parameter.tensor.device();
    if (place.is_meta() || (options.mesh && place.is_cpu())) continue;  // it will be moved
    TORCH_CHECK_VALUE(!device || *device == place, "[cohort] fully_shard needs all parameters on one device, but '",
                      parameter.name, "' is on ", place, ", not on ", *device);
    device = place;
  }
  return device.value_or(c10::Device(c10::kCPU));
}

bool is_sharded_otherwise(const std::vector<NamedParameter>& parameters, const MeshGroups& groups,
                          const Options& options) {
  const auto num_ranks = groups.shards->getSize();
  return std::any_of(parameters.begin(), parameters.end(),
                     [&](const NamedParameter& parameter) { return shard_dim(parameter, num_ranks, options) != 0; });
}

bool fits_one_memory(const std::vector<NamedParameter>& parameters, c10::Device device, const MeshGroups& groups,
                     const Options& options) {
  return options.one_memory && device.is_cpu() && comm::has_shared_memory(groups.shards) &&
         !is_sharded_otherwise(parameters, groups, options);
}

std::shared_ptr<ParamGroup> make_group(const std::vector<NamedParameter>& parameters,
                                       const std::shared_ptr<CommContext>& context, const MeshGroups& groups,
                                       const Options& options) {
  if (options.offload_policy.offloads_to_cpu && context->device.is_cpu()) {
    comm::warn_once_per_job("CPUOffloadPolicy has no effect if the CPU computes: shards are in its memory anyway.");
  }
  const bool fits = fits_one_memory(parameters, context->device, groups, options);
  if (comm::RankExchange(groups.replicas).largest({fits ? 0 : 1}).front() == 0) {  // the same on all replicas
    return std::make_shared<HostParamGroup>(parameters, groups.shards, groups.replicas, options.mp_policy);
  }
  return std::make_shared<GatheredParamGroup>(parameters, groups.shards, groups.replicas, context, options);
}

std::string in_words(const std::optional<c10::ScalarType>& dtype) { return dtype ? c10::toString(*dtype) : "not set"; }

std::string in_words(const std::optional<ReshardAfterForward>& rule) {
  if (!rule) return "not set";
  const auto* const is_on = std::get_if<bool>(&*rule);
  return is_on ? fmt::format("{}", *is_on) : fmt::format("{}", std::get<int>(*rule));
}

std::string in_words(const NamedParameter& parameter, const MeshGroups& groups, const Options& options) {
  const auto dim = shard_dim(parameter, groups.shards->getSize(), options);
  return fmt::format("{} {} [{}]{}{}{}", parameter.name, c10::toString(parameter.tensor.scalar_type()),
                     fmt::join(parameter.tensor.sizes().vec(), ", "), placement_text(parameter.tensor),
                     parameter.tensor.requires_grad() ? "" : " frozen",
                     dim == 0 ? "" : fmt::format(" sharded along dimension {}", dim));
}

// The facts that must be the same on all ranks.
comm::Facts facts_of(const std::vector<NamedParameter>& parameters, c10::Device device, const MeshGroups& groups,
                     const Options& options, const ModulesOfCall& modules) {
  const auto& policy = options.mp_policy;
  comm::Facts facts = {
      {"the mesh", fmt::format("{} x {}", groups.replicas ? groups.replicas->getSize() : 1, groups.shards->getSize())},
      {"the device type", c10::DeviceTypeName(device.type(), /*lower_case=*/true)},
      {"param_dtype", in_words(policy.param_dtype)},
      {"reduce_dtype", in_words(policy.reduce_dtype)},
      {"output_dtype", in_words(policy.output_dtype)},
      {"reshard_after_forward", in_words(options.reshard_after_forward)},
      {"one_memory", fmt::format("{}", options.one_memory)},
      {"the number of modules", fmt::format("{}", std::max<size_t>(modules.names.size(), 1))},
      {"the number of meshes", fmt::format("{}", modules.num_meshes)},
  };
  for (size_t i = 0; i < parameters.size(); ++i) {
    facts.push_back({fmt::format("parameter {}", i), in_words(parameters[i], groups, options)});
  }
  return facts;
}

void check_mesh(const NamedParameter& parameter, const MeshGroups& groups, const Options& options) {
  if (!options.shard_placement_fn) return;
  const auto mesh = options.shard_placement_fn(parameter.tensor).mesh;
  TORCH_CHECK_VALUE(!mesh || groups_of(*mesh) == groups, "[cohort] shard_placement_fn gives parameter '",
                    parameter.name, "' another mesh than this Sharding has: make one Sharding for each mesh");
}

// The mesh, including replicas.
DeviceMesh mesh_of(const MeshGroups& groups, c10::Device device) {
  if (groups.mesh) return *groups.mesh;
  return DeviceMesh::from_group(groups.shards, c10::DeviceTypeName(device.type(), /*lower_case=*/true));
}

// Collective if layers have shards of parameters.
void place_shards(ParamGroup& group, const MeshGroups& groups, c10::Device device) {
  const auto mesh = mesh_of(groups, device);
  std::vector<std::pair<Group, CombinedMesh>> known;
  for (size_t i = 0; i < group.parameters().size(); ++i) {
    const auto& full = group.parameters()[i].full;
    const auto spec = parallel::noted_shard_spec(full);
    if (!spec || is_dtensor(full)) {
      group.place_shard(i, model_shard_of(full, mesh), mesh);
      continue;
    }
    const auto layer = spec->mesh().group();
    auto found = std::find_if(known.begin(), known.end(), [&](const auto& each) { return each.first == layer; });
    if (found == known.end()) {
      const auto type = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
      found = known.insert(known.end(), {layer, combined_mesh(layer, groups, type)});
    }
    const auto& [data, model] = found->second;
    group.place_shard(i, ModelShard{mesh::ShardSpec(model, spec->placements(), spec->shape(), spec->dtype())}, data);
  }
}

// The groups whose ranks have other shards of the same parameters, unlike the data-parallel ranks.
std::vector<Group> groups_of_models(const std::vector<ShardedParameter>& parameters) {
  std::vector<Group> groups;
  for (const auto& parameter : parameters) {
    for (auto& group : groups_of_axes(parameter.model_shard)) {
      if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace

void UnshardHandle::wait() {
  for (const auto& weak : groups_) {
    if (const auto group = weak.lock()) group->wait_for_unshard();
  }
}

Sharding::Sharding(const std::vector<NamedParameter>& parameters, const Options& options,
                   std::function<std::vector<Sharding*>()> find_nested, const ModulesOfCall& modules)
    : mp_policy_(options.mp_policy), find_nested_(std::move(find_nested)), modules_(modules.names) {
  const auto groups = groups_of(options);
  process_group_ = groups.shards;
  replica_group_ = groups.replicas;
  std::vector<NamedParameter> kept;
  comm::Claim claim{.function = "fully_shard",
                    .outcome = "nothing was sharded",
                    .failure = modules.refusal,
                    .throws_own_failure = true};
  try {
    kept = managed(parameters, options);
    for (const auto& parameter : kept) {
      check(parameter);
      check_can_be_combined(parameter, groups);
      check_mesh(parameter, groups, options);
    }
    device_ = device_of(kept, options);
    const auto mesh = mesh_of(groups, device_);
    for (const auto& parameter : kept) {  // throws for a mesh that does not fit that of a DTensor
      const auto dim = shard_dim(parameter, groups.shards->getSize(), options);
      spec_of_shard(parameter.tensor, model_shard_of(parameter.tensor, mesh), dim, parameter.tensor.scalar_type(),
                    mesh);
    }
    claim.facts = facts_of(kept, device_, groups, options, modules);
  } catch (...) {
    if (!claim.failure) claim.failure = std::current_exception();
  }
  comm::agree(claim, {groups.shards, groups.replicas});
  context_ = std::make_shared<CommContext>(device_);
  group_ = make_group(kept, context_, groups, options);
  place_shards(*group_, groups, device_);
  group_->modules_to_run() = ModulesToRun(std::max<size_t>(modules_.size(), 1));
  comm::gradients_are_exchanged();
  if (group_->meeting_group()) barrier({.group = process_group_});  // from now on everyone reads all of it
  for (const auto& parameter : group_->parameters()) {
    parallel::note_full(parameter.full, parameter.shard, process_group_);
    parallel::note_sharded(parameter.shard, process_group_, groups_of_shards(parameter.model_shard));
  }
}

Sharding::~Sharding() {
  if (root_) root_->remove(*group_);
  for (const auto& parameter : group_->parameters()) {
    parallel::forget_sharded(parameter.full);
    // If something else holds a shard, such as an optimizer, it stays marked as a shard.
    if (parameter.shard.use_count() == 1) parallel::forget_sharded(parameter.shard);
  }
}

void Sharding::join_root() {
  if (root_) return;
  TORCH_CHECK(modules_.size() <= 1, "FSDP requires a single root module but got (",
              fmt::format("{}", fmt::join(modules_, ", ")), ")");
  auto nested = find_nested_ ? find_nested_() : std::vector<Sharding*>();
  nested.insert(nested.end(), siblings_.begin(), siblings_.end());
  for (auto* const other : nested) {
    if (group_->parameters().empty() && device_.is_cpu() &&
        !other->device_.is_cpu()) {  // it has no parameters of its own
      device_ = other->device_;
      context_ = other->context_;
    }
    context_->max_reductions = std::max(context_->max_reductions, other->context_->max_reductions);
  }
  auto root = std::make_shared<RootPass>(context_);
  root->set_is_last_backward(is_last_backward_);
  if (post_optim_event_) root->set_post_optim_event(std::move(post_optim_event_));
  for (auto* const other : nested) {
    TORCH_CHECK(!other->root_,
                "FSDP state has already been lazily initialized for a nested module\nFSDP requires running "
                "forward through "
                "the root module first");
  }
  for (auto* const other : nested) {
    other->root_ = root;
    other->context_ = context_;
    const bool is_sibling = std::find(siblings_.begin(), siblings_.end(), other) != siblings_.end();
    root->add(*other->group_, /*is_root=*/is_sibling);
  }
  root_ = std::move(root);
  root_->add(*group_, /*is_root=*/true);
}

Sharding::Forward::Forward(Sharding& sharding, size_t module)
    : sharding_(sharding), module_(module), num_exceptions_(std::uncaught_exceptions()) {
  TORCH_CHECK_INDEX(module < sharding.group_->modules_to_run().num_modules(), "[cohort] this Sharding has no module ",
                    module);
  sharding_.join_root();
  if (at::GradMode::is_enabled() && sharding_.process_group_->getSize() > 1) comm::check_batch_is_of_share();
  sharding_.root_->begin_forward();
  is_outermost_ = sharding_.root_->is_outermost();
  try {
    sharding_.group_->before_forward();
    if (is_in_autograd()) return;  // a recomputation needs nothing more
    sharding_.group_->modules_to_run().begin();
    for (auto* const other : sharding_.forward_prefetch_) other->group_->unshard(/*in_backward=*/false);
  } catch (...) {
    sharding_.root_->end_forward(/*was_thrown=*/true);
    throw;
  }
}

std::vector<at::Tensor> Sharding::Forward::inputs(std::vector<at::Tensor> inputs) {
  auto& group = *sharding_.group_;
  for (auto& input : inputs) input = sharding_.prepared(input, is_outermost_);
  if (!group.follows_passes() || !at::GradMode::is_enabled() || is_in_autograd()) return inputs;
  std::vector<at::Tensor> followed;
  std::vector<size_t> places;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    followed.push_back(inputs[i]);
    places.push_back(i);
  }
  if (followed.empty()) {
    // The gradients of the other modules are not sufficient: this module's are there only at the end of backward.
    if (sharding_.modules_.size() > 1) group.expect_backward();
    return inputs;
  }
  group.expect_backward();
  const auto anchored =
      anchor_inputs(followed, [root = sharding_.root_, group = std::weak_ptr<ParamGroup>(sharding_.group_)] {
        if (const auto known = group.lock()) root->after_backward(*known);
      });
  for (size_t i = 0; i < places.size(); ++i) inputs[places[i]] = anchored[i];
  return inputs;
}

// The root's inputs are moved to the device that computes, as DDP's; the inputs of every module get the dtype to compute in.
at::Tensor Sharding::prepared(const at::Tensor& input, bool is_outermost) const {
  if (!input.defined()) return input;
  const auto& [param_dtype, reduce_dtype, output_dtype, casts_inputs] = mp_policy_;
  const bool is_moved = !device_.is_cpu() && input.device() != device_ && is_outermost;
  const auto moved = is_moved ? input.to(device_, /*non_blocking=*/true) : input;
  return param_dtype && casts_inputs && moved.is_floating_point() ? moved.to(*param_dtype) : moved;
}

void Sharding::Forward::outputs(const std::vector<at::Tensor>& outputs) {
  end();
  if (!sharding_.group_->follows_passes() || !at::GradMode::is_enabled() || is_in_autograd()) return;
  hook_outputs(outputs,
               [&sharding = sharding_, root = sharding_.root_, group = std::weak_ptr<ParamGroup>(sharding_.group_)] {
                 const auto known = group.lock();
                 if (!known) return;  // the group, and so the sharding, is gone
                 std::vector<ParamGroup*> prefetched;
                 for (auto* const other : sharding.backward_prefetch_) prefetched.push_back(other->group_.get());
                 root->before_backward(*known, prefetched);
               });
}

// A module that is called alone, between the root's passes, begins no round: its parameters stay until backward.
void Sharding::Forward::end() {
  if (std::exchange(is_over_, true) || is_in_autograd()) return;
  auto& group = *sharding_.group_;
  auto& modules = group.modules_to_run();
  const bool is_last = modules.end(module_);
  if (is_outermost_) modules.close();
  if (is_last || (is_outermost_ && !at::GradMode::is_enabled())) {
    group.after_forward();
    sharding_.root_->record(group);
  } else {
    group.after_module();
  }
  if (is_outermost_) sharding_.root_->end_modules();
}

Sharding::Forward::~Forward() {
  const bool was_thrown = std::uncaught_exceptions() > num_exceptions_;
  if (!was_thrown) {
    end();
  } else {
    try {
      sharding_.group_->modules_to_run().close();
      sharding_.group_->after_forward();
      if (is_outermost_) sharding_.root_->end_modules();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the first exception tells more
    }
  }
  sharding_.root_->end_forward(was_thrown);
}

bool Sharding::follows_passes() const { return group_->follows_passes(); }

std::vector<at::Tensor> Sharding::parameters() const {
  std::vector<at::Tensor> shards;
  for (const auto& parameter : group_->parameters()) shards.push_back(parameter.shard);
  return shards;
}

const std::vector<ShardedParameter>& Sharding::sharded_parameters() const { return group_->parameters(); }

GroupMemory Sharding::memory() const { return group_->memory(); }

GroupSettings& Sharding::settings() { return group_->settings(); }

const GroupSettings& Sharding::settings() const { return group_->settings(); }

void Sharding::set_gradient_divide_factor(double factor) {
  TORCH_CHECK_VALUE(factor > 0, "[cohort] the gradient divide factor must be positive, got ", factor);
  settings().gradient_divide_factor = factor;
}

UnshardHandle Sharding::unshard(bool async_op) {
  context_->gather_stream.wait_for_current();  // an optimizer may have written shards there
  if (group_->meeting_group()) {               // later reads must see what all ranks have written
    group_->refresh();
    barrier({.group = process_group_});
  }
  group_->unshard(/*in_backward=*/false);
  UnshardHandle handle(group_);
  if (!async_op) handle.wait();
  return handle;
}

void Sharding::reshard() {
  group_->reshard();
  if (root_) root_->note_written();
}

// Before the first forward pass the root is unknown: join_root() passes the value on.
void Sharding::set_is_last_backward(bool value) {
  is_last_backward_ = value;
  if (root_) root_->set_is_last_backward(value);
}

void Sharding::set_post_optim_event(c10::Event event) {
  auto shared = std::make_shared<c10::Event>(std::move(event));
  if (root_) {
    root_->set_post_optim_event(std::move(shared));
  } else {
    post_optim_event_ = std::move(shared);
  }
}

void Sharding::reset_iter_state() {
  if (root_) root_->reset();
}

void Sharding::share_comm_ctx(Sharding& other) {
  TORCH_CHECK(!root_ && !other.root_, "[cohort] share_comm_ctx must be called before the first forward pass");
  other.context_->max_reductions = std::max(other.context_->max_reductions, context_->max_reductions);
  context_ = other.context_;
  group_->join(context_, /*is_root=*/false);
}

void Sharding::set_reduce_scatter_max_input_buffers(int max_input_buffers) {
  TORCH_CHECK_VALUE(max_input_buffers >= 1, "max_input_buffers must be a positive int, got ", max_input_buffers);
  (root_ ? root_->context() : *context_).max_reductions = static_cast<size_t>(max_input_buffers);
}

void Sharding::write(const Writer& writer) {
  const bool is_writer = process_group_->getRank() == 0 && (!replica_group_ || replica_group_->getRank() == 0);
  barrier({.group = process_group_});
  comm::StepResult written = std::string();
  const auto& parameters = group_->parameters();
  const auto model_groups = groups_of_models(parameters);
  const Writer guarded = [&](const std::string& name, const at::Tensor& full) {  // the other ranks wait for all writes
    if (!written) return;
    written = comm::attempt([&] {
      writer(name, full);
      return std::string();
    });
  };
  const Writer writes_parts = [&](const std::string& name, const at::Tensor& own) {
    const auto found =
        std::find_if(parameters.begin(), parameters.end(), [&](const auto& each) { return each.name == name; });
    write_full(guarded, *found, own);
  };
  group_->write(is_writer ? &writes_parts : nullptr);
  // All ranks wait for the writer.
  for (const auto& group : {process_group_, replica_group_}) written = comm::RankExchange(group).from_first(written);
  for (const auto& group : model_groups) written = comm::RankExchange(group).from_first(written);
  group_->refresh();
  if (group_->meeting_group()) barrier({.group = process_group_});
  comm::or_throw(written, "write() failed on rank 0 of the group");
}

}  // namespace cohort::fsdp
