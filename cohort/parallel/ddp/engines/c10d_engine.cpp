#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/logger.hpp>

#include <utility>

#include "cohort/comm/release/torch_compat.h"
#include "cohort/parallel/ddp/engines/engine.h"
#include "cohort/parallel/ddp/settings/hook_result.h"
#include "cohort/parallel/module/gradient_hooks.h"

namespace cohort::ddp {
namespace {

// Adapts our hook to the interface of LibTorch's reducer.
class HookOfC10d final : public c10d::CommHookInterface {
 public:
  explicit HookOfC10d(CommHook hook) : hook_(std::move(hook)) {}

  CommHookFuture runHook(c10d::GradBucket& bucket) override {
    const auto index = bucket.getIndex();
    // The hook is told only whether the bucket is the last one.
    GradBucket ours(index, bucket.isLast() ? index + 1 : index + 2, bucket.getBuffer(), bucket.getParameters());
    return run_comm_hook(hook_, ours);
  }
  at::Tensor parseHookResult(const c10::IValue& result) override { return tensor_of(result); }

 private:
  const CommHook hook_;
};

// LibTorch's own reducer behind our interface: the reference in tests, a rival in benchmarks.
class C10dEngine final : public GradientEngine {
 public:
  explicit C10dEngine(EngineInput input) : parameters_(input.parameters), options_(input.options) {
    TORCH_CHECK(!input.gradient_dtype,
                "[cohort] mixed_precision needs Engine::kCohort: until its buckets are rebuilt, LibTorch's reducer "
                "averages memory that holds no gradients.");
    comm::C10dReducerArguments arguments;
    arguments.parameters = input.parameters;
    arguments.buckets = input.first_plan;
    arguments.group = input.options.process_group;
    arguments.expect_sparse_gradient = input.options.expect_sparse_gradient;
    arguments.bucket_bytes_cap = static_cast<int64_t>(input.capacity.bytes);
    arguments.first_bucket_bytes_cap = static_cast<int64_t>(input.capacity.first_bytes);
    arguments.bucket_bytes_cap_list = {input.capacity.list.begin(), input.capacity.list.end()};
    arguments.skip_all_reduce_unused_params = input.options.skip_all_reduce_unused_params;
    arguments.batched_grad_copy = input.options.batched_grad_copy;
    arguments.find_unused_parameters = input.options.find_unused_parameters;
    arguments.gradient_as_bucket_view = input.options.gradient_as_bucket_view;
    for (size_t i = 0; i < input.parameters.size(); ++i) {
      arguments.parameter_names[i] =
          i < input.options.parameter_names.size() ? input.options.parameter_names[i] : std::to_string(i);
    }
    reducer_ = comm::make_c10d_reducer(std::move(arguments));
    // The reducer uses its logger without a null check.
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
    // Throws if the step before is unfinished, whether there is anything to rebuild or not.
    has_rebuilt_ |= reducer_->rebuild_buckets();
  }

  void prepare(const std::vector<at::Tensor>& outputs) override {
    reducer_->prepare_for_forward();
    reducer_->prepare_for_backward(outputs);
    // Otherwise the reducer would divide every later step as it did the last one.
    if (!std::exchange(divides_by_live_ranks_, false)) reducer_->set_forward_pass_work_handle(nullptr, true);
    ++num_steps_;
  }

  bool needs_outputs() const override { return options_.find_unused_parameters || options_.static_graph; }
  void finalize() override {}

  void register_comm_hook(CommHook hook) override {
    reducer_->register_comm_hook(std::make_unique<HookOfC10d>(std::move(hook)));
  }

  void divide_by_live_ranks(const c10::intrusive_ptr<c10d::Work>& count, int) override {
    reducer_->set_forward_pass_work_handle(count, /*useStaticWorldSize=*/false);
    divides_by_live_ranks_ = true;
  }

  void shadow_step() override {
    ++num_steps_;
    const bool is_first_static_step = options_.static_graph && num_steps_ == 1;
    if (is_first_static_step) shadow_use_counts();
    std::vector<CommHookFuture> futures;
    for (auto& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/true)) {
      futures.push_back(reducer_->run_comm_hook(bucket));
    }
    wait_for_all(futures);
    if (options_.find_unused_parameters && !options_.static_graph) shadow_use_counts();
    if (!is_first_static_step) reducer_->push_rebuilt_params_for_all_indices();
  }

  void install_futures(const std::vector<CommHookFuture>& futures) override {
    c10::List<CommHookFuture> list(c10::FutureType::create(c10::TensorType::get()));
    for (const auto& future : futures) list.push_back(future);
    reducer_->install_futures(list);
  }
  void reset() override {
    reducer_->reset_state();
    has_rebuilt_ = false;
  }
  void update_process_group(const Group& group) override {
    options_.process_group = group;
    reducer_->update_process_group(group);
  }
  void remove_hooks() override {
    hooks_.clear();
    reducer_->remove_autograd_hooks();
  }

  void observe(ReductionObserver&) override {
    TORCH_CHECK(
        false,
        "[cohort] fuse_step and track_gradient_norm need Engine::kCohort: LibTorch's reducer does not say when a "
        "bucket is done.");
  }

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
  // With a static graph the first step is reduced after backward; the reducer leaves that to its caller.
  void delay_first_reduction() {
    if (num_steps_ == 0 || is_delayed_) return;
    is_delayed_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback([this] { reducer_->delay_all_reduce(); });
  }

  void shadow_use_counts() {
    std::vector<at::Tensor> used{at::zeros_like(reducer_->get_local_used_map_on_device())};
    options_.process_group->getBackend(used.front().device().type())->allreduce(used)->wait();
  }

  size_t index_of(const at::Tensor& parameter) const {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].is_same(parameter)) return i;
    }
    TORCH_CHECK(false, "[cohort] a bucket holds a tensor that is not a parameter of this reducer");
  }

  std::vector<at::Tensor> parameters_;
  ReducerOptions options_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // after the reducer: destroyed before it
  bool has_rebuilt_ = false;
  int64_t num_steps_ = 0;
  bool is_delayed_ = false;
  bool divides_by_live_ranks_ = false;
  std::vector<parallel::GradientHook> hooks_;
};

}  // namespace

std::unique_ptr<GradientEngine> make_c10d_engine(EngineInput input) {
  return std::make_unique<C10dEngine>(std::move(input));
}

}  // namespace cohort::ddp
