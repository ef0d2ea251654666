#include "cohort/train/strategy/accelerator.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <cstdio>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/train/metrics/numbers_over_ranks.h"
#include "cohort/train/strategy/launch_place.h"

namespace cohort::train {
namespace {

AcceleratorOptions checked(AcceleratorOptions options) {
  TORCH_CHECK_VALUE(options.gradient_accumulation_steps >= 1,
                    "[cohort] Accelerator: gradient_accumulation_steps is at least 1, but got ",
                    options.gradient_accumulation_steps);
  [[maybe_unused]] const Precision known(options.precision, at::kCPU);  // throws for an unknown name
  return options;
}

}  // namespace

struct Accelerator::State {
  explicit State(AcceleratorOptions given)
      : options(checked(std::move(given))),
        place(detail::take_place(options.strategy)),
        precision(options.precision, place.device) {}

  AcceleratorOptions options;
  detail::LaunchPlace place;
  Precision precision;
  std::unique_ptr<Strategy> strategy;
  torch::optim::Optimizer* optimizer = nullptr;
  bool is_unscaled = false;
};

Accelerator::Accelerator(AcceleratorOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Accelerator::~Accelerator() = default;

void Accelerator::attach(std::shared_ptr<torch::nn::Module> net, torch::optim::Optimizer& optimizer) {
  TORCH_CHECK_VALUE(!state_->strategy,
                    "[cohort] Accelerator: prepare() was called before\n"
                    "  hint: construct one Accelerator per model, and call prepare_loader() for more data");
  state_->precision.convert(*net);
  state_->strategy = make_strategy(std::move(net), state_->options.strategy, state_->place);
  adopt_optimizer(*state_->strategy, optimizer, "Accelerator");
  state_->optimizer = &optimizer;
}

void Accelerator::check_runs_whole_steps() const {
  TORCH_CHECK_VALUE(
      strategy().runs_whole_steps(),
      "[cohort] Accelerator: with strategy \"data_parallel\" a model on several devices takes one tensor and "
      "gives one\n  hint: use strategy \"ddp\", which runs any model");
}

LoopHooks Accelerator::hooks(bool is_training) {
  LoopHooks hooks;
  hooks.on_begin = [this, is_training] {
    if (!is_training && state_->strategy) state_->strategy->synchronize_buffers();
  };
  hooks.on_batch = [this, is_training](bool is_last) {
    if (is_training) is_last_batch_ = is_last;
  };
  if (is_training && num_processes() > 1) {
    hooks.do_all = [this](bool has_batch) {
      const auto missing = at::full({}, has_batch ? 0 : 1, at::kLong);
      return numbers_over_ranks(missing, {}, device(), ReduceOp::MAX).item<int64_t>() == 0;
    };
  }
  return hooks;
}

void Accelerator::shard_samples_of(BatchFeed& feed, bool is_training) const {
  shard_samples(feed,
                {.rank = state_->place.rank,
                 .world_size = state_->place.world_size,
                 .seed = state_->options.seed,
                 .device = state_->place.device},
                is_training ? SampleSharding::kEqually : SampleSharding::kOnce);
}

void Accelerator::accumulate() {
  ++num_accumulated_;
  sync_gradients_ = is_last_batch_ || num_accumulated_ == state_->options.gradient_accumulation_steps;
  if (sync_gradients_) num_accumulated_ = 0;
  strategy().set_requires_gradient_sync(sync_gradients_);
}

void Accelerator::backward(const at::Tensor& loss) {
  const auto steps = static_cast<double>(state_->options.gradient_accumulation_steps);
  state_->precision.backward(steps == 1.0 ? loss : loss / steps);
}

at::Tensor Accelerator::clip_grad_norm_(double max_norm, double norm_type) {
  if (!std::exchange(state_->is_unscaled, true)) state_->precision.unscale(*state_->optimizer);
  return cohort::nn::utils::clip_grad_norm_(strategy().parameters(), max_norm, norm_type);
}

void Accelerator::clip_grad_value_(double clip_value) {
  if (!std::exchange(state_->is_unscaled, true)) state_->precision.unscale(*state_->optimizer);
  cohort::nn::utils::clip_grad_value_(strategy().parameters(), clip_value);
}

void Accelerator::Optimizer::step() {
  has_stepped_ = accelerator_->sync_gradients() && accelerator_->precision().step(*optimizer_);
  if (accelerator_->sync_gradients()) accelerator_->state_->is_unscaled = false;
}

void Accelerator::Optimizer::zero_grad() {
  if (accelerator_->sync_gradients()) optimizer_->zero_grad();
}

int Accelerator::process_index() const { return state_->place.rank; }
int Accelerator::num_processes() const { return state_->place.world_size; }
c10::Device Accelerator::device() const { return state_->place.device; }

void Accelerator::print(std::string_view text) const {
  if (!is_main_process()) return;
  std::fputs((std::string(text) + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void Accelerator::wait_for_everyone() const {
  if (num_processes() > 1) barrier();
}

at::Tensor Accelerator::gather(const at::Tensor& tensor) const {
  at::Tensor own = (tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor).contiguous();
  if (num_processes() == 1) return own;
  auto sizes = own.sizes().vec();
  sizes.front() *= num_processes();
  const at::Tensor all = at::empty(sizes, own.options());
  all_gather_single(all, own);
  return all;
}

at::Tensor Accelerator::reduce(const at::Tensor& tensor, const std::string& reduction) const {
  TORCH_CHECK_VALUE(reduction == "mean" || reduction == "sum", "[cohort] Accelerator: there is no reduction \"",
                    reduction, "\"\n  hint: use \"mean\" or \"sum\"");
  const at::Tensor result = tensor.detach().clone();
  if (num_processes() > 1) all_reduce(result);
  return reduction == "mean" ? result / num_processes() : result;
}

Strategy& Accelerator::strategy() const {
  TORCH_CHECK_VALUE(state_->strategy, "[cohort] Accelerator: prepare() has not been called");
  return *state_->strategy;
}

Precision& Accelerator::precision() const { return state_->precision; }

}  // namespace cohort::train
