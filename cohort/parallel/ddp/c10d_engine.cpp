#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/logger.hpp>

#include "cohort/comm/release/torch_compat.h"
#include "cohort/parallel/ddp/engine.h"
#include "cohort/parallel/module/gradient_hooks.h"

namespace cohort::ddp {
namespace {

// LibTorch's own reducer behind our interface: the oracle in tests, a rival in benchmarks.
class C10dEngine final : public GradientEngine {
 public:
  explicit C10dEngine(EngineInput input) : parameters_(input.parameters) {
    comm::C10dReducerArguments arguments;
    arguments.parameters = input.parameters;
    arguments.buckets = input.first_plan;
    arguments.group = input.options.process_group;
    arguments.expect_sparse_gradient = input.options.expect_sparse_gradient;
    arguments.bucket_bytes_cap = static_cast<int64_t>(input.capacity.bytes);
    arguments.first_bucket_bytes_cap = static_cast<int64_t>(input.capacity.first_bytes);
    arguments.find_unused_parameters = input.options.find_unused_parameters;
    arguments.gradient_as_bucket_view = input.options.gradient_as_bucket_view;
    for (size_t i = 0; i < input.parameters.size(); ++i) {
      arguments.parameter_names[i] =
          i < input.options.parameter_names.size() ? input.options.parameter_names[i] : std::to_string(i);
    }
    reducer_ = comm::make_c10d_reducer(std::move(arguments));
    // The reducer uses its logger without asking whether there is one.
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
    logger_->set_construction_data_and_log("", {}, /*output_device=*/-1, /*broadcast_buffers=*/false,
                                           /*has_sync_bn=*/false, input.options.static_graph);
    if (!input.options.static_graph) return;
    reducer_->set_static_graph();
    for (const auto& parameter : parameters_) {
      hooks_.push_back(parallel::add_gradient_hook(parameter, [this](const at::Tensor&) { delay_first_reduction(); }));
    }
  }

  void prepare_forward() override {
    // Throws if the step before was left unfinished, whether there is anything to rebuild or not.
    has_rebuilt_ |= reducer_->rebuild_buckets();
  }

  void prepare(const std::vector<at::Tensor>& outputs) override {
    reducer_->prepare_for_forward();
    reducer_->prepare_for_backward(outputs);
    ++num_steps_;
  }

  void finalize() override {}

  BucketPlan buckets() const override {
    BucketPlan plan;
    for (const auto& bucket : reducer_->get_grad_buckets()) {
      plan.emplace_back();
      for (const auto& parameter : bucket.getParameters()) plan.back().push_back(index_of(parameter));
    }
    return plan;
  }

  bool has_rebuilt_buckets() const override { return has_rebuilt_; }

 private:
  // With a static graph the first step is reduced after backward, which the reducer leaves to its caller.
  void delay_first_reduction() {
    if (num_steps_ != 1 || is_delayed_) return;
    is_delayed_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback([this] { reducer_->delay_all_reduce(); });
  }

  size_t index_of(const at::Tensor& parameter) const {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].is_same(parameter)) return i;
    }
    TORCH_CHECK(false, "a bucket holds a tensor that is not a parameter of this reducer");
  }

  std::vector<at::Tensor> parameters_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // after the reducer: destroyed before it
  bool has_rebuilt_ = false;
  int64_t num_steps_ = 0;
  bool is_delayed_ = false;
  std::vector<parallel::GradientHook> hooks_;
};

}  // namespace

std::unique_ptr<GradientEngine> make_c10d_engine(EngineInput input) {
  return std::make_unique<C10dEngine>(std::move(input));
}

}  // namespace cohort::ddp
