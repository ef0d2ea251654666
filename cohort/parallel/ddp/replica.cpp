#include "cohort/parallel/ddp/replica.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "cohort/base/system/env.h"
#include "cohort/comm/group/job_warning.h"
#include "cohort/comm/group/unshared_batches.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/ddp/engines/delayed_all_reduce.h"
#include "cohort/parallel/ddp/engines/low_precision.h"
#include "cohort/parallel/ddp/engines/pending_passes.h"
#include "cohort/parallel/ddp/replica_join.h"
#include "cohort/parallel/ddp/settings/purpose.h"
#include "cohort/parallel/ddp/settings/reducer_errors.h"
#include "cohort/parallel/module/gradient_hooks.h"
#include "cohort/parallel/module/synchronize.h"

namespace cohort::ddp {
namespace {

using torch::nn::Module;

struct NamedParameters {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  std::vector<bool> is_sparse;
};

bool has_sparse_gradients(const Module& module) {
  if (const auto* embedding = module.as<torch::nn::Embedding>()) return embedding->options.sparse();
  if (const auto* bag = module.as<torch::nn::EmbeddingBag>()) return bag->options.sparse();
  return false;
}

// Returns parameters that need gradients, module by module, each once: a shared parameter counts at its first place.
NamedParameters trainable_parameters(const Module& root, const std::set<std::string>& ignored) {
  NamedParameters result;
  std::unordered_set<const void*> seen;
  for (const auto& item : root.named_modules(/*name_prefix=*/"")) {
    const auto& module = *item.value();
    const bool is_sparse = has_sparse_gradients(module);
    const auto prefix = item.key().empty() ? "" : item.key() + ".";
    for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
      const auto& tensor = parameter.value();
      if (!tensor.requires_grad() || ignored.contains(prefix + parameter.key())) continue;
      if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      result.names.push_back(prefix + parameter.key());
      result.tensors.push_back(tensor);
      result.is_sparse.push_back(is_sparse);
    }
  }
  return result;
}

void check_no_dtensors(const NamedParameters& parameters) {
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    TORCH_CHECK_VALUE(!is_dtensor(parameters.tensors[i]), "[cohort] DistributedDataParallel: parameter \"",
                      parameters.names[i], "\" is a DTensor, as with tensor parallelism, which its buckets cannot hold",
                      "\n  hint: use cohort::replicate(model, {.mesh = mesh[\"dp\"]}) instead");
  }
}

// Two reducers would each divide gradients that the other has already divided.
void check_averaged_once(const Module& root, const NamedParameters& parameters) {
  for (const auto& item : root.named_modules(/*name_prefix=*/"")) {
    if (!dynamic_cast<const Replicated*>(item.value().get())) continue;
    for (const auto& inner : item.value()->parameters()) {
      const auto is_inner = [&](const at::Tensor& parameter) { return parameter.is_same(inner); };
      const auto found = std::find_if(parameters.tensors.begin(), parameters.tensors.end(), is_inner);
      TORCH_CHECK_VALUE(found == parameters.tensors.end(), "[cohort] DistributedDataParallel: the module ",
                        item.key().empty() ? "" : "\"" + item.key() + "\" inside ",
                        "is wrapped already, so that gradients such as that of \"",
                        parameters.names[found - parameters.tensors.begin()],
                        "\" would be averaged twice. Wrap it once, or list its parameters in "
                        "parameters_and_buffers_to_ignore.");
    }
  }
}

// Returns the tensors with other names, each once.
std::vector<at::Tensor> select(const torch::OrderedDict<std::string, at::Tensor>& tensors,
                               const std::set<std::string>& ignored) {
  std::vector<at::Tensor> result;
  std::unordered_set<const void*> seen;
  for (const auto& entry : tensors) {
    const auto& tensor = entry.value();
    if (!tensor.defined() || ignored.contains(entry.key())) continue;
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) result.push_back(tensor);
  }
  return result;
}

std::vector<at::Tensor> detached(std::vector<at::Tensor> tensors) {
  for (auto& tensor : tensors) tensor = tensor.detach();
  return tensors;
}

void check_can_be_written(const std::string& name, const at::Tensor& buffer, const std::set<std::string>& ignored) {
  if (!buffer.defined() || ignored.contains(name) || at::has_internal_overlap(buffer) != at::MemOverlap::Yes) return;
  TORCH_CHECK_VALUE(false, "[cohort] DistributedDataParallel: elements of the buffer \"", name, "\" of sizes ",
                    buffer.sizes(),
                    " share memory, as in an expanded tensor, so no rank's values can be written into it\n  hint: "
                    "register buffer.clone(), or list it in parameters_and_buffers_to_ignore");
}

std::string device_list(const std::set<std::string>& devices) {
  return fmt::format("{{'{}'}}", fmt::join(devices, "', '"));
}

void check_devices(const std::vector<at::Tensor>& parameters, const Options& options) {
  TORCH_CHECK_VALUE(options.device_ids.size() <= 1, "device_ids can only be None or contain a single element.");
  std::set<std::string> types;
  std::set<std::string> devices;
  for (const auto& parameter : parameters) {
    types.insert(c10::DeviceTypeName(parameter.device().type(), /*lower_case=*/true));
    devices.insert(parameter.device().str());
  }
  TORCH_CHECK_VALUE(types.size() == 1,
                    "DistributedDataParallel's input module must be on the same type of devices, but input module "
                    "parameters locate in ",
                    device_list(types), ".");
  const bool takes_device_ids = !options.device_ids.empty() && *types.begin() != "cpu" && devices.size() == 1;
  TORCH_CHECK_VALUE(takes_device_ids || (options.device_ids.empty() && !options.output_device),
                    "DistributedDataParallel device_ids and output_device arguments only work with "
                    "single-device/multiple-device GPU modules or CPU modules, but got device_ids [",
                    c10::Join(", ", options.device_ids), "], output_device ",
                    options.output_device ? options.output_device->str() : "None", ", and module parameters ",
                    device_list(devices), ".");
}

}  // namespace

Replica::~Replica() {
  if (base::get_env("COHORT_DDP_REPORT") == "1") print_report();
}

std::vector<at::Tensor> Replica::exchanged_parameters() const {
  return detached(select(module_.named_parameters(), options_.parameters_and_buffers_to_ignore));
}

// BatchNorm has its running statistics in the graph, but does not use them there: a broadcast for the next forward pass must not
// make backward refuse the graph of the pass before.
std::vector<at::Tensor> Replica::exchanged_buffers() const {
  const auto& ignored = options_.parameters_and_buffers_to_ignore;
  for (const auto& entry : module_.named_buffers()) check_can_be_written(entry.key(), entry.value(), ignored);
  auto buffers = select(module_.named_buffers(), ignored);
  for (auto& buffer : buffers) buffer = buffer.variable_data();
  return buffers;
}

Replica::Replica(Module& module, Options options) : options_(std::move(options)), module_(module) {
  auto& delayed = options_.delay_all_reduce_named_params;
  TORCH_CHECK_VALUE(delayed.empty() != options_.param_to_hook_all_reduce.defined(),
                    "delay_all_reduce_named_params and param_to_hook_all_reduce need to be set at the same time.");
  for (const auto& [name, parameter] : delayed) options_.parameters_and_buffers_to_ignore.insert(name);
  if (options_.mixed_precision) {
    check_dtypes(*options_.mixed_precision);
    TORCH_CHECK_VALUE(
        delayed.empty(),
        "[cohort] mixed_precision and delay_all_reduce_named_params exclude each other: delayed parameters would "
        "keep their dtype, and inputs would not.");
  }
  auto parameters = trainable_parameters(module_, options_.parameters_and_buffers_to_ignore);
  TORCH_CHECK(
      !parameters.tensors.empty() || !delayed.empty(),
      "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.");
  check_averaged_once(module_, parameters);
  check_no_dtensors(parameters);
  check_devices(parameters.tensors.empty() ? module_.parameters() : exchanged_parameters(), options_);
  if (!options_.device_ids.empty() && !options_.output_device) options_.output_device = options_.device_ids.front();
  device_ = (parameters.tensors.empty() ? delayed.front().second : parameters.tensors.front()).device();
  if (!options_.process_group) options_.process_group = default_group();
  TORCH_CHECK_VALUE(is_member(options_.process_group),
                    "[cohort] DistributedDataParallel: this rank is not a member of the process group");
  if (!delayed.empty()) {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, parameter] : delayed) tensors.push_back(parameter);
    delayed_ = std::make_unique<DelayedAllReduce>(options_.process_group, tensors, options_.param_to_hook_all_reduce);
  }
  if (parameters.tensors.empty()) return;
  if (options_.init_sync && options_.process_group->getSize() > 1) {
    parallel::verify_same_parameters(options_.process_group, parameters.tensors);
    broadcast_states(/*source=*/0, /*with_buffers=*/true);
  }
  ReducerOptions reducer_options;
  reducer_options.process_group = options_.process_group;
  reducer_options.bucket_cap_mb = options_.bucket_cap_mb;
  reducer_options.bucket_cap_mb_list = options_.bucket_cap_mb_list;
  reducer_options.skip_all_reduce_unused_params = options_.skip_all_reduce_unused_params;
  reducer_options.batched_grad_copy = options_.batched_grad_copy;
  reducer_options.find_unused_parameters = options_.find_unused_parameters;
  reducer_options.static_graph = options_.static_graph;
  reducer_options.gradient_as_bucket_view = options_.gradient_as_bucket_view;
  reducer_options.verify_parameters = false;  // done above, before anything is broadcast
  std::optional<at::ScalarType> gradient_dtype;
  if (options_.mixed_precision) {
    const bool has_sparse = std::count(parameters.is_sparse.begin(), parameters.is_sparse.end(), true) > 0;
    const bool has_complex = std::any_of(parameters.tensors.begin(), parameters.tensors.end(),
                                         [](const at::Tensor& parameter) { return parameter.is_complex(); });
    TORCH_CHECK_VALUE(!has_complex, "[cohort] mixed_precision does not support complex parameters.");
    TORCH_CHECK_VALUE(
        !has_sparse,
        "[cohort] mixed_precision does not support sparse gradients. Make the embedding with sparse=false.");
    gradient_dtype = options_.mixed_precision->param_dtype;
  }
  reducer_options.expect_sparse_gradient = std::move(parameters.is_sparse);
  reducer_options.parameter_names = std::move(parameters.names);
  reducer_options.engine = options_.engine;
  reducer_ = std::unique_ptr<Reducer>(
      new Reducer(parameters.tensors, std::move(reducer_options), Audience::kModule, gradient_dtype));
  if (options_.mixed_precision) set_up_mixed_precision();
  // A static graph may reach a parameter several times in one backward pass.
  if (options_.process_group->getSize() > 1 && !options_.static_graph) {
    if (options_.engine != Engine::kC10d) pending_ = std::make_unique<PendingPasses>([this] { after_backward(); });
    hook_ = std::make_unique<parallel::GradientHook>(
        parallel::add_gradient_hook(parameters.tensors.front(), [this](const at::Tensor&) { note_gradient(); }));
  }
}

void Replica::set_up_mixed_precision() {
  const auto& precision = *options_.mixed_precision;
  const auto& ignored = options_.parameters_and_buffers_to_ignore;
  low_precision_ = std::make_unique<LowPrecision>(select(module_.named_parameters(), ignored), precision);
  reducer_->register_comm_hook(
      [this](GradBucket& bucket) { return low_precision_->reduce(options_.process_group, bucket); });
  if (!precision.buffer_dtype) return;
  for (auto& buffer : select(module_.named_buffers(), ignored)) {
    if (buffer.is_floating_point()) buffer.set_data(buffer.to(*precision.buffer_dtype));
  }
}

Reducer& Replica::reducer() {
  TORCH_CHECK(
      reducer_,
      "[cohort] DistributedDataParallel: the all-reduce of every parameter is delayed, so there is no reducer.");
  return *reducer_;
}

void Replica::broadcast_states(int source, bool with_buffers) const {
  if (low_precision_) low_precision_->restore();  // after a forward pass without backward
  auto states = exchanged_parameters();
  const auto buffers = with_buffers ? exchanged_buffers() : std::vector<at::Tensor>();
  states.insert(states.end(), buffers.begin(), buffers.end());
  parallel::broadcast_from(options_.process_group, states, source);
}

// Warns once if the module is trained by a forward pass of its own: ranks then drift apart, at full speed and without an error.
void Replica::note_gradient() {
  if (pending_) pending_->note_gradient();
  if (num_forwards_ > 0) {
    --num_forwards_;
  } else if (!is_local_) {
    comm::warn_once_per_job(fmt::format(
        "rank {} of {} has trained the module inside DistributedDataParallel without it: a backward pass came from a "
        "forward pass of the module itself, so its gradients stay on this rank and the ranks' models differ from "
        "now on. Call the wrapper instead: ddp(x) or ddp->forward(x)",
        options_.process_group->getRank(), options_.process_group->getSize()));
  }
}

// Called for one of several pending forward passes. The reducer ends its step with the first that comes back.
void Replica::after_backward() {
  if (!reducer_ || is_removed_ || !pending_->finish(/*has_reduced=*/!reducer_->is_expecting())) return;
  if (!options_.find_unused_parameters && !low_precision_ && !was_in_join_) return reducer_->prepare_again();
  comm::warn_once_per_job(fmt::format(
      "rank {} of {}: several forward passes of DistributedDataParallel were followed by several backward passes. With "
      "find_unused_parameters, mixed_precision or join only the first of these is averaged, so the ranks' models "
      "differ from now on. Call backward() after each forward pass, or once for the sum of the losses; or leave the "
      "option off",
      options_.process_group->getRank(), options_.process_group->getSize()));
}

void Replica::update_process_group(const Group& group) {
  if (low_precision_) low_precision_->restore();  // after a step that failed
  if (reducer_) reducer_->update_process_group(group);
  if (pending_) pending_->clear();
  announcement_.reset();
  num_live_work_.reset();
  if (!is_member(group)) return;
  if (delayed_) delayed_->use_group(group);
  options_.process_group = group;
}

void Replica::remove_autograd_hooks() {
  if (reducer_) reducer_->remove_autograd_hooks();
  delayed_.reset();
  is_removed_ = true;
}

std::optional<c10::Device> Replica::input_device() const {
  if (options_.device_ids.empty()) return std::nullopt;
  return options_.device_ids.front();
}

std::optional<at::ScalarType> Replica::input_dtype() const {
  return low_precision_ ? options_.mixed_precision->param_dtype : std::nullopt;
}

void Replica::before_forward() {
  if (!reducer_) return;
  if (is_in_join()) {
    num_live_work_ = Join::notify_join_context(*this);
  } else {
    num_live_work_.reset();  // left by a forward pass in a Join that threw
    announcement_.reset();
  }
  if (at::GradMode::is_enabled() && options_.process_group->getSize() > 1) comm::check_batch_is_of_share();
  if (at::GradMode::is_enabled() || is_in_join()) reducer_->prepare_forward();
  if (synchronizes_buffers_at(BufferCommHookLocation::kPreForward)) synchronize_buffers(/*is_candidate=*/true);
  if (is_in_join()) announce_step();
  if (low_precision_) low_precision_->lower();
}

bool Replica::synchronizes_buffers_at(BufferCommHookLocation location) const {
  return synchronizes_buffers_ && options_.forward_sync_buffers && location == buffer_hook_location_;
}

void Replica::register_buffer_comm_hook(BufferCommHook hook, BufferCommHookLocation location) {
  TORCH_CHECK_TYPE(hook, "Buffer communication hook must be callable.");
  buffer_hook_ = std::move(hook);
  buffer_hook_location_ = location;
}

void Replica::synchronize_buffers(bool is_candidate) {
  if (options_.process_group->getSize() == 1 && !buffer_hook_ && !is_in_join()) return;
  const auto buffers = exchanged_buffers();
  if (buffers.empty()) return;
  const comm::CalledFor purpose(kBufferExchange);
  const int source = is_in_join() ? find_common_rank(is_candidate) : 0;
  if (buffer_hook_) return run_buffer_hook();
  if (options_.process_group->getSize() > 1) parallel::broadcast_from(options_.process_group, buffers, source);
}

void Replica::run_buffer_hook() {
  NamedBuffers buffers;
  for (const auto& entry : module_.named_buffers()) {
    const auto& buffer = entry.value();
    if (!buffer.defined() || options_.parameters_and_buffers_to_ignore.contains(entry.key())) continue;
    buffers.emplace_back(entry.key(), buffer.detach());
  }
  const auto futures = buffer_hook_(buffers);
  if (!futures.empty()) reducer_->install_futures(futures);
}

// Returns the largest rank among the candidates. Collective.
int Replica::find_common_rank(bool is_candidate) const {
  const auto rank = at::full({1}, is_candidate ? options_.process_group->getRank() : -1,
                             at::TensorOptions(at::kLong).device(device_));
  all_reduce(rank, {.op = ReduceOp::MAX, .group = options_.process_group});
  return rank.item<int>();
}

bool Replica::reduces_gradients() const {
  return at::GradMode::is_enabled() && requires_gradient_sync_ && !is_removed_;
}

void Replica::track_gradient_norm(double norm_type) {
  TORCH_CHECK(
      !is_in_join(),
      "[cohort] track_gradient_norm cannot be called inside a join, since other ranks may have run out of data. "
      "Use clip_grad_norm_ after backward.");
  TORCH_CHECK(!delayed_,
              "[cohort] track_gradient_norm and delay_all_reduce_named_params exclude each other: delayed gradients "
              "are not in the "
              "norm. Use clip_grad_norm_ after backward.");
  reducer().track_gradient_norm(norm_type);
}

// Tells ranks without data whether gradients will be exchanged in this step.
void Replica::announce_step() {
  const auto flag = at::full({1}, reduces_gradients() ? 1 : 0, at::TensorOptions(at::kFloat).device(device_));
  announcement_ = all_reduce(flag, {.group = options_.process_group, .async_op = true});
}

void Replica::await_announcements() {
  announcement_->wait();
  announcement_.reset();
  const auto count = std::exchange(num_live_work_, {});
  if (!count) return;
  count->wait();
  if (divides_by_live_ranks_ && reduces_gradients()) {
    reducer_->divide_by_live_ranks(count, static_cast<int>(count->result().front().item<float>()));
  }
}

std::unique_ptr<JoinHook> Replica::join_hook(const JoinOptions& options) {
  TORCH_CHECK(!reducer().tracks_gradient_norm(),
              "[cohort] join and track_gradient_norm exclude each other: ranks without data do not compute their share "
              "of the norm. Use "
              "clip_grad_norm_ after backward.");
  was_in_join_ = true;
  TORCH_CHECK(!options_.skip_all_reduce_unused_params,
              "[cohort] join and skip_all_reduce_unused_params exclude each other: ranks without data do not know "
              "which buckets the "
              "others leave out.");
  TORCH_CHECK(
      !delayed_,
      "[cohort] join and delay_all_reduce_named_params exclude each other: ranks without data take no part in delayed "
      "all-reduces.");
  divides_by_live_ranks_ = !options.divide_by_initial_world_size;
  return std::make_unique<ReplicaJoinHook>(*this);
}

void Replica::after_forward(const std::vector<at::Tensor>& outputs) {
  if (delayed_ && at::GradMode::is_enabled()) delayed_->prepare();
  if (!reducer_) return;
  const bool is_synchronized = reduces_gradients();
  if (at::GradMode::is_enabled()) {
    ++num_forwards_;
    is_local_ = !requires_gradient_sync_;
    if (pending_ && !is_removed_) pending_->add(outputs, is_synchronized, /*has_reduced=*/!reducer_->is_expecting());
  }
  if (low_precision_) low_precision_->watch(outputs);
  if (announcement_) await_announcements();
  if (synchronizes_buffers_at(BufferCommHookLocation::kPostForward)) synchronize_buffers(/*is_candidate=*/true);
  synchronizes_buffers_ = is_synchronized;
  if (is_synchronized) reducer_->prepare(outputs);
}

}  // namespace cohort::ddp
