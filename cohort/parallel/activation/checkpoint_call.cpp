#include "cohort/parallel/activation/checkpoint_call.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <utility>

#include "cohort/parallel/activation/ambient_state.h"
#include "cohort/parallel/activation/checkpoint_frame.h"
#include "cohort/parallel/activation/operator_log.h"
#include "cohort/parallel/activation/saved_tensor_hooks.h"

namespace cohort {
namespace {

thread_local int early_stop_of_thread = -1;  // -1: as in the options

}  // namespace

CheckpointEarlyStop::CheckpointEarlyStop(bool is_enabled)
    : previous_(std::exchange(early_stop_of_thread, static_cast<int>(is_enabled))) {}
CheckpointEarlyStop::~CheckpointEarlyStop() { early_stop_of_thread = previous_; }

namespace activation {
namespace {

using torch::autograd::AutogradContext;

struct ReentrantCall : torch::CustomClassHolder {
  ReentrantCall(const Tensors& inputs, bool with_rng, std::function<Tensors(const Tensors&)> function)
      : state(inputs, with_rng), again(std::move(function)) {}
  AmbientState state;
  std::function<Tensors(const Tensors&)> again;
};
using ReentrantCallPtr = c10::intrusive_ptr<ReentrantCall>;

// Implements CheckpointFunction of torch/utils/checkpoint.py.
struct ReentrantFunction : torch::autograd::Function<ReentrantFunction> {
  static Tensors forward(AutogradContext* context, at::TensorList inputs, const ReentrantCallPtr& call,
                         const std::function<Tensors()>& run) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->save_for_backward(inputs.vec());
    return run();
  }

  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    TORCH_CHECK(torch::autograd::Engine::get_default_engine().is_checkpoint_valid(),
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward(). To resolve this error, you can either set use_reentrant=False, or call "
                ".backward() without passing the `inputs` argument.");
    const auto call = c10::static_intrusive_pointer_cast<ReentrantCall>(context->saved_data["call"].toCapsule());
    Tensors inputs;
    for (const at::Tensor& saved : context->get_saved_variables()) {
      inputs.push_back(saved.detach().set_requires_grad(saved.requires_grad()));
    }
    Tensors outputs = run_again(*call, inputs);
    Tensors roots;
    Tensors gradients_of_roots;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      gradients_of_roots.push_back(gradients.at(i));
    }
    TORCH_CHECK(!roots.empty(), "none of output has requires_grad=True, this checkpoint() is not necessary");
    outputs.clear();
    torch::autograd::backward(roots, gradients_of_roots);
    Tensors result;
    for (const at::Tensor& input : inputs) result.push_back(input.grad());
    result.resize(result.size() + 2);  // undefined for the other arguments of forward
    return result;
  }

 private:
  static Tensors run_again(const ReentrantCall& call, const Tensors& inputs) {
    const AmbientState::Again same_state(call.state);
    const at::AutoGradMode with_gradients(true);
    return call.again(inputs);
  }
};

bool has_gradient(const Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

}  // namespace

const at::Tensor& placeholder_tensor() {
  static const at::Tensor* const tensor = new at::Tensor(at::empty({0}));
  return *tensor;
}

void run_checkpointed(const CheckpointOptions& options, const Tensors& inputs, const std::function<void()>& forward,
                      std::function<void(const Tensors&)> again) {
  if (!at::GradMode::is_enabled()) return forward();
  CheckpointOptions chosen = options;
  if (early_stop_of_thread >= 0) chosen.early_stop = early_stop_of_thread != 0;
  const auto frame = std::make_shared<CheckpointFrame>(
      inputs,
      [again = std::move(again), state = AmbientState(inputs, options.preserve_rng_state)](const Tensors& unpacked) {
        const AmbientState::Again same_state(state);
        again(unpacked);
      },
      chosen);
  const OperatorLog log(chosen.debug);
  {
    const SavedTensorHooks hooks([frame](const at::Tensor& tensor) { return frame->add_place(tensor); });
    forward();
  }
  frame->finish_forward(log.operators());
}

Tensors run_reentrant(const CheckpointOptions& options, const Tensors& inputs, const std::function<Tensors()>& forward,
                      std::function<Tensors(const Tensors&)> again) {
  TORCH_CHECK_VALUE(!options.debug, "Passing `context_fn` or `debug` is only supported when use_reentrant=False.");
  if (!has_gradient(inputs)) {
    TORCH_WARN("None of the inputs have requires_grad=True. Gradients will be None");
  }
  const auto call = c10::make_intrusive<ReentrantCall>(inputs, options.preserve_rng_state, std::move(again));
  return ReentrantFunction::apply(at::TensorList(inputs), call, forward);
}

}  // namespace activation
}  // namespace cohort
