#include "tests/support/inline_engine.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <utility>

#include "cohort/parallel/ddp/buckets/bucket_memory.h"
#include "cohort/parallel/ddp/buckets/device_streams.h"
#include "cohort/parallel/ddp/engines/engine.h"
#include "cohort/parallel/ddp/engines/unfinished_step.h"
#include "cohort/parallel/ddp/settings/hook_result.h"
#include "cohort/parallel/module/gradient_hooks.h"

namespace cohort::ddp {
namespace {

class InlineEngine final : public GradientEngine {
 public:
  explicit InlineEngine(EngineInput input)
      : parameters_(std::move(input.parameters)),
        options_(std::move(input.options)),
        audience_(input.audience),
        plan_(std::move(input.first_plan)),
        gradient_dtype_(input.gradient_dtype),
        caller_streams_(parameters_),
        uses_(parameters_.size()),
        is_ready_(parameters_.size()) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      hooks_.push_back(parallel::add_gradient_hook(parameters_[i], [this, i](const at::Tensor&) { on_gradient(i); }));
    }
  }

  void prepare_forward() override {}

  void prepare(const std::vector<at::Tensor>& outputs) override {
    if (hooks_.empty()) return;  // they were removed
    num_live_ = std::exchange(next_num_live_, 0);
    caller_streams_.remember();
    is_ready_.assign(parameters_.size(), 0);
    is_expecting_ = true;
    is_queued_ = false;
    // At the end of their backward pass. One within it, such as a checkpointed layer's, may bring the first gradient.
    for (const auto& output : outputs) {
      if (!output.requires_grad() || output.is_leaf()) continue;
      output.register_hook([this, alive = std::weak_ptr(alive_)](const at::Tensor&) {
        if (!alive.expired() && is_expecting_) queue_end();
      });
    }
  }

  bool needs_outputs() const override { return true; }
  bool is_expecting() const override { return is_expecting_; }
  void finalize() override {
    if (is_expecting_) reduce_all();
  }

  void register_comm_hook(CommHook hook) override { hook_ = std::move(hook); }
  void install_futures(const std::vector<CommHookFuture>& futures) override {
    futures_.insert(futures_.end(), futures.begin(), futures.end());
  }
  void reset() override {
    is_expecting_ = false;
    futures_.clear();
    next_num_live_ = 0;
    uses_.assign(parameters_.size(), 0);
  }
  void update_process_group(const Group& group) override { options_.process_group = group; }
  void remove_hooks() override { hooks_.clear(); }
  void observe(ReductionObserver& observer) override { observer_ = &observer; }
  BucketPlan buckets() const override { return plan_; }
  bool has_rebuilt_buckets() const override { return false; }
  void divide_by_live_ranks(const c10::intrusive_ptr<c10d::Work>&, int num_live) override { next_num_live_ = num_live; }
  void shadow_step() override {
    if (counts_uses()) all_reduce(at::zeros({static_cast<int64_t>(parameters_.size())}, int_options()));
    for (size_t i = 0; i < plan_.size(); ++i)
      exchange(i, zeros_of_bucket(parameters_, plan_[i], is_sparse(i), gradient_dtype_));
    wait_for_all(futures_);
  }

 private:
  void on_gradient(size_t index) {
    uses_[index] = 1;
    if (!is_expecting_) return;
    is_ready_[index] = 1;
    queue_end();
  }

  void queue_end() {
    if (std::exchange(is_queued_, true)) return;
    torch::autograd::Engine::get_default_engine().queue_callback([this] { reduce_all(); });
  }

  void reduce_all() {
    const at::NoGradGuard no_grad;
    is_expecting_ = false;
    const bool may_skip = counts_uses();
    if (!may_skip) check_all_used();
    auto counts = at::tensor(uses_, at::kInt).to(parameters_.front().device());
    if (may_skip) all_reduce(counts);
    for (size_t i = 0; i < plan_.size(); ++i) reduce_bucket(i, may_skip ? counts.to(at::kCPU) : at::Tensor());
    uses_.assign(parameters_.size(), 0);
    if (observer_) observer_->on_end();
    wait_for_all(futures_);
  }

  void reduce_bucket(size_t bucket, const at::Tensor& counts) {
    const auto& indices = plan_[bucket];
    const int divisor = num_live_ > 0 ? num_live_ : options_.process_group->getSize();
    const double factor = hook_ ? 1.0 : 1.0 / divisor;
    if (is_sparse(bucket)) {
      auto gradient = parameters_[indices.front()].grad();
      if (!hook_) gradient.div_(divisor);
      gradient.copy_(exchange(bucket, gradient));
      return;
    }
    std::vector<at::Tensor> pieces;
    for (const size_t index : indices) {
      const auto& parameter = parameters_[index];
      const auto& grad = parameter.grad();
      used_in_current_stream(grad);  // here and by whoever reads it next; another stream may have made it
      const auto piece = grad.defined() ? grad * factor : at::zeros_like(parameter);
      pieces.push_back(piece.reshape({-1}).to(gradient_dtype_.value_or(parameter.scalar_type())));
    }
    const auto flat = exchange(bucket, at::cat(pieces));
    std::vector<size_t> given;
    int64_t offset = 0;
    for (const size_t index : indices) {
      const auto& parameter = parameters_[index];
      const auto mean = flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
      offset += parameter.numel();
      if (counts.defined() && counts[static_cast<int64_t>(index)].item<int>() == 0) continue;
      given.push_back(index);
      auto& grad = parameter.mutable_grad();
      if (!grad.defined()) grad = caller_streams_.make_like(parameter);
      grad.copy_(mean);
    }
    if (observer_) observer_->on_bucket(given);
  }

  bool counts_uses() const { return options_.find_unused_parameters || options_.static_graph; }
  bool is_sparse(size_t bucket) const { return options_.expect_sparse_gradient[plan_[bucket].front()]; }
  at::TensorOptions int_options() const { return at::TensorOptions(at::kInt).device(parameters_.front().device()); }

  at::Tensor exchange(size_t bucket, const at::Tensor& tensor) {
    if (!hook_) {
      all_reduce(tensor);
      return tensor;
    }
    std::vector<at::Tensor> parameters;
    for (const size_t index : plan_[bucket]) parameters.push_back(parameters_[index]);
    GradBucket seen(bucket, plan_.size(), tensor, std::move(parameters));
    auto result = result_of(run_comm_hook(hook_, seen));
    if (tensor.is_sparse()) return result;
    if (!tensor.is_complex()) return result.reshape(tensor.sizes());  // in the dtype that the hook gave
    copy_result(tensor, result);
    return tensor;
  }

  void all_reduce(const at::Tensor& tensor) {
    std::vector<at::Tensor> tensors{tensor};
    options_.process_group->getBackend(tensor.device().type())->allreduce(tensors)->wait();
  }

  void check_all_used() const {
    if (std::count(is_ready_.begin(), is_ready_.end(), 0) == 0) return;
    throw_unfinished(options_, audience_, "the step cannot end", is_ready_);
  }

  std::vector<at::Tensor> parameters_;
  ReducerOptions options_;
  Audience audience_;
  BucketPlan plan_;
  std::optional<at::ScalarType> gradient_dtype_;
  CommHook hook_;
  CallerStreams caller_streams_;
  ReductionObserver* observer_ = nullptr;
  std::vector<CommHookFuture> futures_;
  int num_live_ = 0;       // ranks to divide by; 0: all
  int next_num_live_ = 0;  // the same of the next step
  std::vector<int> uses_;  // since the last reduction, local steps included
  std::vector<char> is_ready_;
  bool is_expecting_ = false;
  bool is_queued_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::vector<parallel::GradientHook> hooks_;
};

std::unique_ptr<GradientEngine> make_inline_engine(EngineInput input) {
  return std::make_unique<InlineEngine>(std::move(input));
}

[[maybe_unused]] const EngineMaker kWithoutOne = std::exchange(make_engine_of_tests, &make_inline_engine);

}  // namespace

const Engine kInline = kEngineOfTests;

}  // namespace cohort::ddp
