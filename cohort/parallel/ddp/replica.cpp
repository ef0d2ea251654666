#include "cohort/parallel/ddp/replica.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <set>
#include <unordered_set>

#include "cohort/base/log.h"
#include "cohort/base/purpose.h"
#include "cohort/parallel/ddp/reducer_errors.h"
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

// Parameters that need gradients, module by module, each once: a shared parameter counts where it is met first.
NamedParameters trainable_parameters(const Module& root) {
  NamedParameters result;
  std::unordered_set<const void*> seen;
  for (const auto& item : root.named_modules(/*name_prefix=*/"")) {
    const auto& module = *item.value();
    const bool is_sparse = has_sparse_gradients(module);
    const auto prefix = item.key().empty() ? "" : item.key() + ".";
    for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
      const auto& tensor = parameter.value();
      if (!tensor.requires_grad() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      result.names.push_back(prefix + parameter.key());
      result.tensors.push_back(tensor);
      result.is_sparse.push_back(is_sparse);
    }
  }
  return result;
}

std::vector<at::Tensor> without_duplicates(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  std::unordered_set<const void*> seen;
  for (const auto& tensor : tensors) {
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) result.push_back(tensor.detach());
  }
  return result;
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

void synchronise_module(const Module& module, const std::vector<at::Tensor>& parameters, const Group& group) {
  if (group->getSize() == 1) return;
  parallel::verify_same_parameters(group, parameters);
  auto states = without_duplicates(module.parameters());
  const auto buffers = without_duplicates(module.buffers());
  states.insert(states.end(), buffers.begin(), buffers.end());
  parallel::broadcast_from_first(group, states);
}

}  // namespace

Replica::Replica(Module& module, Options options) : options_(std::move(options)), module_(module) {
  auto parameters = trainable_parameters(module_);
  TORCH_CHECK(
      !parameters.tensors.empty(),
      "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.");
  check_devices(module_.parameters(), options_);
  if (!options_.device_ids.empty() && !options_.output_device) options_.output_device = options_.device_ids.front();
  if (!options_.process_group) options_.process_group = default_group();
  TORCH_CHECK_VALUE(is_member(options_.process_group),
                    "DistributedDataParallel: this rank is not a member of the process group");
  if (options_.init_sync) synchronise_module(module_, parameters.tensors, options_.process_group);
  ReducerOptions reducer_options;
  reducer_options.process_group = options_.process_group;
  reducer_options.bucket_cap_mb = options_.bucket_cap_mb;
  reducer_options.find_unused_parameters = options_.find_unused_parameters;
  reducer_options.static_graph = options_.static_graph;
  reducer_options.gradient_as_bucket_view = options_.gradient_as_bucket_view;
  reducer_options.verify_parameters = false;  // done above, before anything is broadcast
  reducer_options.expect_sparse_gradient = std::move(parameters.is_sparse);
  reducer_options.parameter_names = std::move(parameters.names);
  reducer_options.engine = options_.engine;
  reducer_ = std::unique_ptr<Reducer>(new Reducer(parameters.tensors, std::move(reducer_options), Reader::kModule));
  // A static graph may reach a parameter several times in one backward pass.
  if (options_.process_group->getSize() > 1 && !options_.static_graph) {
    hook_ = std::make_unique<parallel::GradientHook>(
        parallel::add_gradient_hook(parameters.tensors.front(), [this](const at::Tensor&) { note_gradient(); }));
  }
}

Replica::~Replica() = default;

// One warning where the module is trained by a forward pass of its own: ranks then drift apart, at full speed and without an
// error.
void Replica::note_gradient() {
  if (num_forwards_ > 0) {
    --num_forwards_;
  } else if (!is_local_) {
    base::warn_once(fmt::format(
        "rank {} of {} has trained the module inside DistributedDataParallel without it: a backward pass came from a "
        "forward pass of the module itself, so its gradients stay on this rank and the ranks' models differ from "
        "now on. Call the wrapper instead: ddp(x) or ddp->forward(x)",
        options_.process_group->getRank(), options_.process_group->getSize()));
  }
}

std::optional<c10::Device> Replica::input_device() const {
  if (options_.device_ids.empty()) return std::nullopt;
  return options_.device_ids.front();
}

void Replica::before_forward() {
  if (at::GradMode::is_enabled()) reducer_->prepare_forward();
  if (!synchronises_buffers_ || !options_.forward_sync_buffers || options_.process_group->getSize() == 1) return;
  const base::CalledFor purpose(base::Purpose::kDdpBuffers);
  parallel::broadcast_from_first(options_.process_group, without_duplicates(module_.buffers()));
}

void Replica::after_forward(const std::vector<at::Tensor>& outputs) {
  const bool is_synchronised = at::GradMode::is_enabled() && synchronises_gradients_;
  if (at::GradMode::is_enabled()) {
    ++num_forwards_;
    is_local_ = !synchronises_gradients_;
  }
  synchronises_buffers_ = is_synchronised;
  if (is_synchronised) reducer_->prepare(outputs);
}

}  // namespace cohort::ddp
