#include "cohort/parallel/fsdp/groups/pass_anchor.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

#include "cohort/comm/group/job_warning.h"

namespace cohort::fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Callback : torch::CustomClassHolder {
  explicit Callback(std::function<void()> call) : call(std::move(call)) {}
  std::function<void()> call;
};

struct Anchor : torch::autograd::Function<Anchor> {
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<Callback>& done,
                               at::TensorList inputs) {
    context->set_materialize_grads(false);
    context->saved_data["done"] = c10::IValue::make_capsule(done);
    return inputs.vec();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto done = context->saved_data["done"].toCapsule();
    static_cast<Callback&>(*done).call();
    variable_list result = {at::Tensor()};
    result.insert(result.end(), gradients.begin(), gradients.end());
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> anchor_inputs(const std::vector<at::Tensor>& inputs, std::function<void()> done) {
  return Anchor::apply(c10::make_intrusive<Callback>(std::move(done)), at::TensorList(inputs));
}

void hook_outputs(const std::vector<at::Tensor>& outputs, const std::function<void()>& begin) {
  for (const auto& output : outputs) {
    if (!output.requires_grad()) continue;
    if (output.is_view()) {
      comm::warn_once_per_job(
          "FSDP2-wrapped module returned a view tensor. An in-place op on this view (e.g., `x += y`) will silently "
          "drop the pre-backward hook and skip the all-gather, which can cause backward to fail or produce wrong "
          "gradients. Use out-of-place ops (`out = out + y`, not `out += y`) or `.clone()` the output before any "
          "in-place op.");
    }
    output.register_hook([begin](const at::Tensor&) { begin(); });
  }
}

}  // namespace cohort::fsdp
