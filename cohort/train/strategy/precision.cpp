#include "cohort/train/strategy/precision.h"

#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <utility>

#include "cohort/base/text/text.h"
#include "cohort/parallel/ddp/replica.h"
#include "cohort/parallel/fsdp/sharded_module.h"

namespace cohort::train {
namespace {

// The parameters of wrappers lie where the wrappers have put them.
void check_can_be_converted(const torch::nn::Module& net) {
  for (const auto& module : net.modules()) {
    if (!dynamic_cast<fsdp::ShardedModule*>(module.get()) && !dynamic_cast<ddp::Replicated*>(module.get())) continue;
    for (const auto& parameter : module->parameters()) {
      TORCH_CHECK_VALUE(
          !parameter.is_floating_point() || parameter.scalar_type() == at::kBFloat16,
          "[cohort] Trainer: precision \"bf16\" converts a model before it is wrapped, but this one, or a "
          "part of it, is wrapped already, and not in bfloat16\n  hint: call net->to(at::kBFloat16) before fully_shard "
          "or DistributedDataParallel, and before its optimizer is made");
    }
  }
}

}  // namespace

Precision::Precision(const std::string& name, c10::Device device, const Group& stages) : device_(device) {
  if (name == "bf16-mixed") {
    autocast_dtype_ = at::kBFloat16;
  } else if (name == "16-mixed") {
    autocast_dtype_ = at::kHalf;
    scaler_.emplace(amp::GradScalerOptions{.device = device.type(), .process_group = stages});
  } else if (name == "bf16") {
    is_pure_ = true;
  } else {
    TORCH_CHECK_VALUE(name == "32", "[cohort] Trainer: there is no precision \"", name, "\"",
                      base::did_you_mean(name, {"32", "bf16-mixed", "16-mixed", "bf16"}),
                      "\n  hint: use \"32\", \"bf16-mixed\", \"16-mixed\" or \"bf16\"");
  }
}

std::optional<Autocast> Precision::autocast() const {
  if (!autocast_dtype_) return std::nullopt;
  return std::optional<Autocast>(std::in_place, device_.type(), AutocastOptions{.dtype = autocast_dtype_});
}

void Precision::convert(torch::nn::Module& net) const {
  if (!is_pure_) return;
  check_can_be_converted(net);
  net.to(at::kBFloat16);
}

at::Tensor Precision::input(const at::Tensor& tensor) const {
  return is_pure_ && tensor.is_floating_point() ? tensor.to(at::kBFloat16) : tensor;
}

at::Tensor Precision::output(const at::Tensor& tensor) const {
  const bool has_16_bits = tensor.defined() && at::isReducedFloatingType(tensor.scalar_type());
  return autocast_dtype_ && has_16_bits ? tensor.to(at::kFloat) : tensor;
}

void Precision::backward(const at::Tensor& loss) { (scaler_ ? scaler_->scale(loss) : loss).backward(); }

void Precision::unscale(torch::optim::Optimizer& optimizer) {
  if (scaler_) scaler_->unscale_(optimizer);
}

bool Precision::step(torch::optim::Optimizer& optimizer) {
  if (!scaler_) {
    optimizer.step();
    return true;
  }
  scaler_->step(optimizer);
  scaler_->update();
  return scaler_->has_stepped();
}

}  // namespace cohort::train
