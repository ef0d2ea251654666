#include "cohort/parallel/module/gradient_hooks.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>
#include <vector>

namespace cohort::parallel {
namespace {

class Multiplexer final : public torch::autograd::PostAccumulateGradHook {
 public:
  void operator()(const at::Tensor& parameter) override {
    for (const auto& [id, callback] : callbacks_) callback(parameter);
  }
  int add(GradientCallback callback) {
    callbacks_.emplace_back(++last_id_, std::move(callback));
    return last_id_;
  }
  void remove(int id) {
    std::erase_if(callbacks_, [id](const auto& entry) { return entry.first == id; });
  }
  bool empty() const { return callbacks_.empty(); }

 private:
  std::vector<std::pair<int, GradientCallback>> callbacks_;
  int last_id_ = 0;
};

Multiplexer* multiplexer_of(const at::Tensor& parameter) {
  return dynamic_cast<Multiplexer*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
}

}  // namespace

GradientHook add_gradient_hook(const at::Tensor& parameter, GradientCallback callback) {
  TORCH_CHECK_VALUE(parameter.is_leaf() && parameter.requires_grad(),
                    "[cohort] a gradient hook needs a leaf tensor that requires a gradient");
  auto& slot = torch::autograd::impl::post_acc_grad_hooks(parameter);
  TORCH_CHECK_VALUE(!slot || multiplexer_of(parameter),
                    "[cohort] the parameter's post-accumulate hook slot is held by something else; use "
                    "cohort::parallel::add_gradient_hook");
  if (!slot) torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Multiplexer>());
  return {parameter, multiplexer_of(parameter)->add(std::move(callback))};
}

GradientHook::GradientHook(GradientHook&& other) noexcept
    : parameter_(std::move(other.parameter_)), id_(std::exchange(other.id_, 0)) {}

GradientHook& GradientHook::operator=(GradientHook&& other) noexcept {
  if (this != &other) {
    remove();
    parameter_ = std::move(other.parameter_);
    id_ = std::exchange(other.id_, 0);
  }
  return *this;
}

GradientHook::~GradientHook() { remove(); }

void GradientHook::remove() {
  if (id_ == 0 || !parameter_.defined()) return;
  if (auto* multiplexer = multiplexer_of(parameter_)) {
    multiplexer->remove(id_);
    if (multiplexer->empty()) torch::autograd::impl::set_post_acc_grad_hooks(parameter_, nullptr);
  }
  id_ = 0;
}

}  // namespace cohort::parallel
