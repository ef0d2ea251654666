#include "cohort/parallel/optim/fused_optimizers.h"

#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

#include "cohort/parallel/optim/fused_update.h"

namespace cohort::optim {
namespace {

using TensorLists = std::vector<std::vector<at::Tensor>>;

// LibTorch's step updates all parameters that have a gradient: this hides the gradients of the other parameters meanwhile.
class GradientsAside {
 public:
  explicit GradientsAside(const TensorLists& parameters) {
    for (const auto& list : parameters) {
      for (const auto& parameter : list) {
        aside_.emplace_back(parameter, std::exchange(parameter.mutable_grad(), at::Tensor()));
      }
    }
  }
  ~GradientsAside() {
    for (auto& [parameter, gradient] : aside_) parameter.mutable_grad() = std::move(gradient);
  }
  GradientsAside(const GradientsAside&) = delete;
  GradientsAside& operator=(const GradientsAside&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> aside_;
};

// Runs LibTorch's part first, since it may throw for a gradient.
template <class Base>
at::Tensor fused_step(Base& optimizer, FusedUpdate update, const torch::optim::Optimizer::LossClosure& closure) {
  const at::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  TensorLists fused;
  bool has_others = false;
  for (const auto& group : optimizer.param_groups()) {
    auto& list = fused.emplace_back();
    for (const auto& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      if (can_fuse(parameter)) {
        list.push_back(parameter);
      } else {
        has_others = true;
      }
    }
  }
  if (has_others) {
    const GradientsAside aside(fused);
    optimizer.Base::step();
  }
  for (size_t i = 0; i < fused.size(); ++i) update(optimizer, optimizer.param_groups()[i], fused[i]);
  return loss;
}

}  // namespace

at::Tensor AdamW::step(LossClosure closure) { return fused_step<torch::optim::AdamW>(*this, fused_adamw, closure); }

at::Tensor Adam::step(LossClosure closure) { return fused_step<torch::optim::Adam>(*this, fused_adam, closure); }

at::Tensor SGD::step(LossClosure closure) { return fused_step<torch::optim::SGD>(*this, fused_sgd, closure); }

}  // namespace cohort::optim
