// The readable reference: after backward, one bucket after the other is flattened, all-reduced and copied back.
// Same plan, same arithmetic and same order of operations as the overlapping engine, without its states.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "cohort/parallel/ddp/engine.h"
#include "cohort/parallel/ddp/reducer_errors.h"
#include "cohort/parallel/module/gradient_hooks.h"

namespace cohort::ddp {
namespace {

class InlineEngine final : public GradientEngine {
 public:
  explicit InlineEngine(EngineInput input)
      : parameters_(std::move(input.parameters)),
        options_(std::move(input.options)),
        reader_(input.reader),
        plan_(std::move(input.first_plan)),
        uses_(parameters_.size()),
        is_ready_(parameters_.size()) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      hooks_.push_back(parallel::add_gradient_hook(parameters_[i], [this, i](const at::Tensor&) { on_gradient(i); }));
    }
  }

  void prepare_forward() override {}

  void prepare(const std::vector<at::Tensor>&) override {
    is_ready_.assign(parameters_.size(), 0);
    is_expecting_ = true;
    is_queued_ = false;
  }

  void finalize() override {
    if (is_expecting_) reduce_all();
  }

  BucketPlan buckets() const override { return plan_; }
  bool has_rebuilt_buckets() const override { return false; }

 private:
  void on_gradient(size_t index) {
    uses_[index] = 1;
    if (!is_expecting_) return;
    is_ready_[index] = 1;
    if (is_queued_) return;
    is_queued_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback([this] { reduce_all(); });
  }

  void reduce_all() {
    const at::NoGradGuard no_grad;
    is_expecting_ = false;
    const bool may_skip = options_.find_unused_parameters || options_.static_graph;
    if (!may_skip) check_all_used();
    auto counts = at::tensor(uses_, at::kInt).to(parameters_.front().device());
    if (may_skip) all_reduce(counts);
    for (const auto& indices : plan_) reduce_bucket(indices, may_skip ? counts.to(at::kCPU) : at::Tensor());
    uses_.assign(parameters_.size(), 0);
  }

  void reduce_bucket(const std::vector<size_t>& indices, const at::Tensor& counts) {
    const double factor = 1.0 / options_.process_group->getSize();
    if (options_.expect_sparse_gradient[indices.front()]) {
      auto gradient = parameters_[indices.front()].grad().div_(options_.process_group->getSize());
      all_reduce(gradient);
      return;
    }
    std::vector<at::Tensor> pieces;
    for (const size_t index : indices) {
      const auto& grad = parameters_[index].grad();
      pieces.push_back((grad.defined() ? grad * factor : at::zeros_like(parameters_[index])).reshape({-1}));
    }
    auto flat = at::cat(pieces);
    all_reduce(flat);
    int64_t offset = 0;
    for (const size_t index : indices) {
      const auto& parameter = parameters_[index];
      const auto mean = flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
      offset += parameter.numel();
      if (counts.defined() && counts[static_cast<int64_t>(index)].item<int>() == 0) continue;
      auto& grad = parameter.mutable_grad();
      if (!grad.defined()) grad = at::empty_like(parameter);
      grad.copy_(mean);
    }
  }

  void all_reduce(at::Tensor tensor) {
    std::vector<at::Tensor> tensors{tensor};
    options_.process_group->getBackend(tensor.device().type())->allreduce(tensors)->wait();
  }

  void check_all_used() const {
    UnfinishedReduction state{.reader = reader_,
                              .what = "the step cannot end",
                              .rank = options_.process_group->getRank(),
                              .world_size = options_.process_group->getSize(),
                              .indices = {},
                              .names = options_.parameter_names,
                              .num_parameters = parameters_.size()};
    for (size_t i = 0; i < is_ready_.size(); ++i) {
      if (!is_ready_[i]) state.indices.push_back(i);
    }
    TORCH_CHECK(state.indices.empty(), unfinished_reduction_message(state));
  }

  std::vector<at::Tensor> parameters_;
  ReducerOptions options_;
  Reader reader_;
  BucketPlan plan_;
  std::vector<int> uses_;  // since the last reduction, local steps included
  std::vector<char> is_ready_;
  bool is_expecting_ = false;
  bool is_queued_ = false;
  std::vector<parallel::GradientHook> hooks_;
};

}  // namespace

std::unique_ptr<GradientEngine> make_inline_engine(EngineInput input) {
  return std::make_unique<InlineEngine>(std::move(input));
}

}  // namespace cohort::ddp
