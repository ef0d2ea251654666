#include "cohort/parallel/ddp/engines/low_precision.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <utility>

#include "cohort/comm/collectives/collectives.h"

namespace cohort::ddp {

void check_dtypes(const MixedPrecision& precision) {
  const auto check = [](const char* name, const std::optional<at::ScalarType>& dtype) {
    TORCH_CHECK_VALUE(!dtype || at::isFloatingType(*dtype), "[cohort] mixed_precision: ", name,
                      " must be a floating-point dtype, such as torch::kBFloat16, got ", dtype.value_or(at::kFloat));
  };
  check("param_dtype", precision.param_dtype);
  check("reduce_dtype", precision.reduce_dtype);
  check("buffer_dtype", precision.buffer_dtype);
}

LowPrecision::LowPrecision(const std::vector<at::Tensor>& parameters, const MixedPrecision& precision)
    : precision_(precision) {
  if (!precision.param_dtype) return;
  for (const auto& parameter : parameters) {
    if (!parameter.is_floating_point() || parameter.scalar_type() == *precision.param_dtype) continue;
    index_of_.emplace(parameter.unsafeGetTensorImpl(), entries_.size());
    entries_.push_back({parameter, parameter.scalar_type()});
    if (!parameter.requires_grad()) continue;
    // Outputs may not lead to the backward pass, for example in a type of the user's own.
    hooks_.push_back(parallel::add_gradient_hook(parameter, [this](const at::Tensor&) {
      has_gradients_ = true;
      restore_after_backward();
    }));
  }
}

LowPrecision::~LowPrecision() { restore(); }

void LowPrecision::lower() {
  const bool has_backward = at::GradMode::is_enabled();
  const c10::InferenceMode no_inference(false);  // backward must be able to use the parameters
  const at::NoGradGuard no_grad;
  is_watching_ = false;  // left by a backward pass that threw
  was_low_ = std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.full.defined(); });
  for (auto& entry : entries_) {
    lower(entry);
    auto& gradient = entry.parameter.mutable_grad();  // autograd will add to it
    if (has_backward && gradient.defined()) gradient = gradient.to(*precision_.param_dtype);
  }
}

void LowPrecision::lower(Entry& entry) const {
  auto& parameter = entry.parameter;
  if (entry.full.defined()) {  // lowered by a forward pass whose backward is yet to come: its graph needs these data
    if (parameter._version() == entry.version) entry.low.copy_(entry.full);
    return;
  }
  entry.full = parameter.variable_data();
  entry.low = entry.full.to(*precision_.param_dtype);
  parameter.set_data(entry.low);
  entry.version = parameter._version();
}

void LowPrecision::restore(Entry& entry) {
  const c10::InferenceMode no_inference(false);
  const at::NoGradGuard no_grad;
  if (entry.full.defined()) {
    if (entry.parameter._version() != entry.version)
      entry.full.copy_(entry.parameter);  // the program has written into it
    entry.parameter.set_data(std::exchange(entry.full, {}));
    entry.low.reset();
  }
  auto& gradient = entry.parameter.mutable_grad();
  if (gradient.defined() && gradient.scalar_type() != entry.dtype) gradient.set_data(gradient.to(entry.dtype));
}

void LowPrecision::restore() {
  is_watching_ = false;
  has_gradients_ = false;
  for (auto& entry : entries_) restore(entry);
}

// Runs after everything else that waits for the end of backward: the engine may take gradients then, and needs low ones. A pass
// that brings no gradients, such as that of a gradient penalty, leaves the parameters to the pass that does.
void LowPrecision::restore_after_backward() {
  if (is_watching_.exchange(true)) return;
  auto& autograd = torch::autograd::Engine::get_default_engine();
  autograd.queue_callback([this, &autograd, alive = std::weak_ptr(alive_)] {
    autograd.queue_callback([this, alive] {
      if (alive.expired()) return;
      is_watching_ = false;
      if (has_gradients_) restore();
    });
  });
}

// Watches the outputs, to get the end of the whole pass: a pass within it, such as a checkpointed layer's, ends earlier.
void LowPrecision::watch(const std::vector<at::Tensor>& outputs) {
  if (!at::GradMode::is_enabled()) {
    if (!was_low_) restore();
    return;
  }
  for (const auto& output : outputs) {
    if (!output.requires_grad() || output.is_leaf()) continue;
    output.register_hook([this, alive = std::weak_ptr(alive_)](const at::Tensor&) {
      if (!alive.expired()) restore_after_backward();
    });
  }
}

CommHookFuture LowPrecision::reduce(const Group& group, GradBucket& bucket) {
  const at::NoGradGuard no_grad;
  const auto buffer = precision_.reduce_dtype ? bucket.buffer().to(*precision_.reduce_dtype) : bucket.buffer();
  const auto future = all_reduce(buffer, {.group = group, .async_op = true})->getFuture();
  for (const auto& parameter : bucket.parameters()) {  // nothing in this backward pass needs them any more
    const auto found = index_of_.find(parameter.unsafeGetTensorImpl());
    if (found != index_of_.end()) restore(entries_[found->second]);
  }
  return future->then(
      [buffer, world_size = group->getSize()](c10::ivalue::Future& done) {
        const at::NoGradGuard without_grad;
        tensor_of(done.value());  // throws what the reduction has thrown
        return c10::IValue(buffer.div_(world_size));
      },
      c10::TensorType::get());
}

}  // namespace cohort::ddp
