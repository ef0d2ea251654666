#include "cohort/parallel/data_parallel/replicas.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "cohort/comm/tensors/plain_tensor.h"

namespace cohort::nn::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::nn::Module;
using TensorVector = std::vector<at::Tensor>;

constexpr size_t kMaxSets = 4;

struct ReplicaGradient {
  at::Tensor gradient;
  std::optional<c10::Stream> stream;  // of the replica's forward pass; backward uses it too
};

// Autograd has set the stream of the device where the sum is made; on the replica's device it may have used the current stream.
at::Tensor moved_from_replica(const ReplicaGradient& of, const c10::Device& device) {
  if (!of.stream || of.stream->device() == device) return of.gradient.to(device);
  const auto current = c10::impl::VirtualGuardImpl(device.type()).getStream(of.stream->device());
  if (current != *of.stream) {
    c10::Event event(device.type());
    event.record(current);
    event.block(*of.stream);
  }
  const c10::StreamGuard guard(*of.stream);
  return of.gradient.to(device, /*non_blocking=*/true);
}

// Sums in the order of the replicas, so that it is the same in every run. Sparse gradients stay sparse if all are, as in PyTorch.
at::Tensor sum_of(const std::vector<ReplicaGradient>& gradients, const c10::Device& device) {
  const bool are_sparse = std::all_of(gradients.begin(), gradients.end(),
                                      [](const ReplicaGradient& of) { return of.gradient.is_sparse(); });
  at::Tensor sum;
  bool is_own = false;
  for (const auto& of : gradients) {
    auto part = moved_from_replica(of, device);
    if (part.is_sparse() && !are_sparse) part = part.to_dense();
    if (!sum.defined()) {
      sum = part;
    } else if (is_own) {
      sum.add_(part);
    } else {
      sum = sum + part;
      is_own = true;
    }
  }
  return sum;
}

// Gives tensors of the replicas, replica by replica, a history: they come from the sources.
struct BroadcastParameters : torch::autograd::Function<BroadcastParameters> {
  static TensorVector forward(AutogradContext* context, at::TensorList sources, const TensorVector& copies,
                              const std::vector<c10::Stream>& streams) {
    context->set_materialize_grads(false);
    context->saved_data["num_sources"] = static_cast<int64_t>(sources.size());
    context->saved_data["device"] = sources.front().device();
    c10::List<c10::Stream> kept;
    for (const auto& stream : streams) kept.push_back(stream);
    context->saved_data["streams"] = kept;
    TensorVector outputs;
    outputs.reserve(copies.size());
    for (const auto& copy : copies) outputs.push_back(copy.variable_data());
    return outputs;
  }
  static TensorVector backward(AutogradContext* context, const TensorVector& gradients) {
    const auto num_sources = static_cast<size_t>(context->saved_data["num_sources"].toInt());
    const auto device = context->saved_data["device"].toDevice();
    const auto streams = context->saved_data["streams"].to<c10::List<c10::Stream>>();
    TensorVector sums;
    for (size_t i = 0; i < num_sources; ++i) {
      std::vector<ReplicaGradient> of_source;
      for (size_t j = i; j < gradients.size(); j += num_sources) {
        if (!gradients[j].defined()) continue;
        of_source.push_back({gradients[j], std::nullopt});
        if (!streams.empty()) of_source.back().stream = streams.get(j / num_sources);
      }
      sums.push_back(sum_of(of_source, device));
    }
    sums.resize(num_sources + 2);  // undefined for the copies and the streams, which are not variables
    return sums;
  }
};

bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && comm::starts_like(a, b) && a.sizes() == b.sizes() && a.strides() == b.strides();
}

// Returns the number of holders of the tensor, or of other tensors of its memory; the first replica's memory is the module's.
size_t num_holders(const at::Tensor& copy, bool is_first) {
  return copy.use_count() + (is_first ? 0 : copy.storage().use_count());
}

// clone() initializes the copy first, which draws random numbers.
class KeptRandomNumbers {
 public:
  KeptRandomNumbers() : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~KeptRandomNumbers() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }
  KeptRandomNumbers(const KeptRandomNumbers&) = delete;
  KeptRandomNumbers& operator=(const KeptRandomNumbers&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

std::vector<std::shared_ptr<Module>> clones_of(const Module& source, const Devices& devices) {
  const KeptRandomNumbers kept;
  const c10::InferenceMode normal(false);
  std::vector<std::shared_ptr<Module>> clones;
  try {
    for (const auto& device : devices) clones.push_back(source.clone(device));
  } catch (c10::Error& error) {
    error.add_context("DataParallel makes replicas of a module with its clone()");
    throw;
  }
  return clones;
}

// clone() of a Sequential with names gives its modules numbers instead, in the same order.
bool keeps_names(const Module& module) {
  const auto all = module.modules();
  return std::none_of(all.begin(), all.end(),
                      [](const auto& each) { return each->name() == "torch::nn::SequentialImpl"; });
}

template <class Dictionary>
void check_same_names(const Dictionary& source, const Dictionary& clone, const Module& module) {
  TORCH_CHECK(source.size() == clone.size() && (!keeps_names(module) || source.keys() == clone.keys()),
              "[cohort] clone() of ", module.name(),
              " has other names of parameters, buffers or modules than the module itself, or another order; a replica "
              "must have the same");
}

}  // namespace

struct Replicas::Copied {
  at::Tensor source;
  TensorVector copies;                // of each replica
  std::vector<size_t> num_holders{};  // of each copy, after the last refresh
};

Replicas::Replicas(std::shared_ptr<Module> source, const Devices& devices)
    : source_(std::move(source)),
      devices_(devices),
      modules_(clones_of(*source_, devices)),
      source_parts_(source_->modules()) {
  check_module_device(*source_, devices_.front());
  const auto parameters = source_->named_parameters();
  const auto buffers = source_->named_buffers();
  for (const auto& entry : parameters) tensors_.push_back({entry.value(), {}});
  for (const auto& entry : buffers) tensors_.push_back({entry.value(), {}});
  for (const auto& module : modules_) {
    parts_.push_back(module->modules());
    check_same_names(source_->named_modules(), module->named_modules(), *source_);
    const auto own_parameters = module->named_parameters();
    const auto own_buffers = module->named_buffers();
    check_same_names(parameters, own_parameters, *source_);
    check_same_names(buffers, own_buffers, *source_);
    size_t i = 0;
    for (const auto& entry : own_parameters) tensors_[i++].copies.push_back(entry.value());
    for (const auto& entry : own_buffers) tensors_[i++].copies.push_back(entry.value());
  }
  for (auto& tensor : tensors_) {
    for (auto& copy : tensor.copies) copy.set_requires_grad(false);
  }
}

Replicas::~Replicas() = default;

void Replicas::refresh(size_t count, bool detach) {
  detach = detach || !at::GradMode::is_enabled();
  const c10::InferenceMode normal(false);  // the replicas' tensors outlive this pass
  {
    const at::NoGradGuard no_grad;
    wait_for_earlier_streams(count);
    adopt_memory();
    copy_values(count);
    copy_modes(count);
  }
  if (!detach) connect(count);
  for (auto& tensor : tensors_) {
    tensor.num_holders.clear();
    for (size_t k = 0; k < devices_.size(); ++k) tensor.num_holders.push_back(num_holders(tensor.copies[k], k == 0));
  }
}

bool Replicas::is_in_use() const {
  for (const auto& tensor : tensors_) {
    for (size_t k = 0; k < tensor.num_holders.size(); ++k) {
      if (num_holders(tensor.copies[k], k == 0) > tensor.num_holders[k]) return true;
    }
  }
  return false;
}

bool Replicas::fits() const {
  const auto parameters = source_->parameters();
  const auto buffers = source_->buffers();
  if (parameters.size() + buffers.size() != tensors_.size() || source_->modules() != source_parts_) return false;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto& now = i < parameters.size() ? parameters[i] : buffers[i - parameters.size()];
    const auto& copy = tensors_[i].copies.back();
    if (!now.is_same(tensors_[i].source) || now.sizes() != copy.sizes() || now.dtype() != copy.dtype()) return false;
  }
  return true;
}

// A graph of an earlier pass used the memory, perhaps in another stream.
void Replicas::wait_for_earlier_streams(size_t count) {
  if (devices_.front().is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(devices_.front().type());
  for (size_t k = 0; k < count; ++k) {
    const auto stream = guard.getStream(devices_[k]);
    if (k == streams_.size()) streams_.push_back(stream);
    if (streams_[k] == stream) continue;
    c10::Event event(devices_[k].type());
    event.record(streams_[k]);
    event.block(stream);
    streams_[k] = stream;
  }
}

void Replicas::adopt_memory() {
  for (auto& tensor : tensors_) {
    auto& copy = tensor.copies.front();
    if (!shares_memory(copy, tensor.source)) copy.set_data(tensor.source.detach());
    // Lets backward notice a change of the module since forward, as without DataParallel.
    if (!tensor.source.is_inference()) {
      torch::autograd::impl::set_version_counter(copy, torch::autograd::impl::version_counter(tensor.source));
    }
  }
}

void Replicas::copy_values(size_t count) {
  for (auto& tensor : tensors_) {
    for (auto& copy : tensor.copies) {
      if (copy.grad_fn()) torch::autograd::impl::set_gradient_edge(copy, {});
    }
    for (size_t k = 1; k < count; ++k) {
      tensor.copies[k].copy_(tensor.source.detach(), /*non_blocking=*/!devices_[k].is_cpu());
    }
  }
}

void Replicas::connect(size_t count) {
  TensorVector sources;
  TensorVector copies;
  for (const auto& tensor : tensors_) {
    if (tensor.source.requires_grad()) sources.push_back(tensor.source);
  }
  if (sources.empty()) return;
  for (size_t k = 0; k < count; ++k) {
    for (const auto& tensor : tensors_) {
      if (tensor.source.requires_grad()) copies.push_back(tensor.copies[k]);
    }
  }
  const auto outputs = BroadcastParameters::apply(at::TensorList(sources), copies, streams_);
  for (size_t j = 0; j < copies.size(); ++j) {
    torch::autograd::impl::set_gradient_edge(copies[j], torch::autograd::impl::gradient_edge(outputs[j]));
  }
}

void Replicas::copy_modes(size_t count) {
  for (size_t k = 0; k < count; ++k) {
    for (size_t i = 0; i < source_parts_.size(); ++i) {  // parents first, since train() reaches all modules in them
      const bool is_training = source_parts_[i]->is_training();
      if (parts_[k][i]->is_training() != is_training) parts_[k][i]->train(is_training);
    }
  }
}

ReplicaCache::ReplicaCache(std::shared_ptr<Module> source, Devices devices)
    : source_(std::move(source)), devices_(std::move(devices)) {}

ReplicaCache::~ReplicaCache() = default;

const Replicas& ReplicaCache::take(size_t count, bool detach) {
  std::erase_if(sets_, [](const auto& set) { return !set->is_in_use() && !set->fits(); });
  auto found = std::find_if(sets_.begin(), sets_.end(), [](const auto& set) { return !set->is_in_use(); });
  if (found == sets_.end()) {
    if (sets_.size() == kMaxSets) sets_.erase(sets_.begin());  // its graph keeps the tensors that it needs
    sets_.push_back(std::make_unique<Replicas>(source_, devices_));
    found = std::prev(sets_.end());
  }
  (*found)->refresh(count, detach);
  return **found;
}

void ReplicaCache::clear() { sets_.clear(); }

void detail::check_clone(bool has_type, const Module& module) {
  TORCH_CHECK(has_type, "[cohort] clone() of the module made a ", module.name(),
              ", which is not the module's own type; derive the module itself from torch::nn::Cloneable");
}

}  // namespace cohort::nn::parallel
