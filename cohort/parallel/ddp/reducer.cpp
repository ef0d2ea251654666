#include "cohort/parallel/ddp/reducer.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/watch/unwrapped_training.h"
#include "cohort/parallel/ddp/engines/engine.h"
#include "cohort/parallel/ddp/engines/fused_step.h"
#include "cohort/parallel/ddp/engines/gradient_norm.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"
#include "cohort/parallel/ddp/hooks/compress_hooks.h"
#include "cohort/parallel/ddp/settings/reducer_errors.h"
#include "cohort/parallel/module/sharded_tensors.h"
#include "cohort/parallel/module/synchronize.h"

namespace cohort::ddp {
namespace {

void settle_options(const std::vector<at::Tensor>& parameters, ReducerOptions& options) {
  TORCH_CHECK_VALUE(!parameters.empty(), "[cohort] ddp::Reducer needs at least one parameter");
  for (size_t i = 0; i < parameters.size(); ++i) {
    TORCH_CHECK_VALUE(parameters[i].defined() && parameters[i].is_leaf() && parameters[i].requires_grad(),
                      "[cohort] ddp::Reducer: parameter ", i, " must be a leaf tensor that requires a gradient");
  }
  if (!options.process_group) options.process_group = default_group();
  TORCH_CHECK_VALUE(is_member(options.process_group),
                    "[cohort] ddp::Reducer: this rank is not a member of the process group");
  auto& sparse = options.expect_sparse_gradient;
  if (sparse.empty()) sparse.assign(parameters.size(), false);
  TORCH_CHECK_VALUE(sparse.size() == parameters.size(),
                    "[cohort] ddp::ReducerOptions: expect_sparse_gradient needs one flag per parameter, ",
                    parameters.size(), ", got ", sparse.size());
  TORCH_CHECK_VALUE(options.parameter_names.empty() || options.parameter_names.size() == parameters.size(),
                    "[cohort] ddp::ReducerOptions: parameter_names needs one name per parameter, ", parameters.size(),
                    ", got ", options.parameter_names.size());
  TORCH_CHECK_VALUE(!options.bucket_cap_mb || *options.bucket_cap_mb > 0,
                    "[cohort] ddp::ReducerOptions: bucket_cap_mb must be positive, got ",
                    options.bucket_cap_mb.value_or(0));
  for (const double mb : options.bucket_cap_mb_list) {
    TORCH_CHECK_VALUE(mb > 0, "[cohort] ddp::ReducerOptions: each number of bucket_cap_mb_list must be positive, got ",
                      mb);
  }
}

std::vector<ParameterInfo> describe(const std::vector<at::Tensor>& parameters, const std::vector<bool>& sparse) {
  std::vector<ParameterInfo> infos;
  for (size_t i = 0; i < parameters.size(); ++i) {
    infos.push_back({parameters[i].scalar_type(), parameters[i].device(), parameters[i].nbytes(), sparse[i]});
  }
  return infos;
}

// For ddp::Reducer's own users; DistributedDataParallel has already verified its module's parameters.
void verify_parameters(const Group& group, const std::vector<at::Tensor>& parameters) {
  try {
    parallel::verify_same_parameters(group, parameters);
  } catch (const c10::DistError&) {  // the ranks' exchange has failed
    throw;
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, different_parameters_message(group->getRank(), group->getSize(), comm::text_of(error)));
  }
}

std::unique_ptr<GradientEngine> make_engine(EngineInput input) {
  const Engine engine = input.options.engine;
  if (engine == Engine::kC10d) return make_c10d_engine(std::move(input));
  if (engine == kEngineOfTests && make_engine_of_tests) return make_engine_of_tests(std::move(input));
  return make_overlap_engine(std::move(input));
}

}  // namespace

EngineMaker make_engine_of_tests = nullptr;

Reducer::Reducer(std::vector<at::Tensor> parameters, ReducerOptions options)
    : Reducer(std::move(parameters), std::move(options), Audience::kReducer, /*gradient_dtype=*/{}) {}

Reducer::Reducer(std::vector<at::Tensor> parameters, ReducerOptions options, Audience audience,
                 std::optional<at::ScalarType> gradient_dtype) {
  comm::gradients_are_exchanged();
  settle_options(parameters, options);
  group_ = options.process_group;
  parameters_ = parameters;
  for (const bool is_sparse : options.expect_sparse_gradient) expects_sparse_ |= is_sparse;
  if (options.verify_parameters && options.process_group->getSize() > 1) {
    verify_parameters(options.process_group, parameters);
  }
  EngineInput input;
  input.capacity = bucket_capacity(options.bucket_cap_mb, options.bucket_cap_mb_list);
  input.infos = describe(parameters, options.expect_sparse_gradient);
  input.first_plan =
      plan_buckets(input.infos, initial_limits(input.capacity, options.find_unused_parameters, options.static_graph));
  // Gradients become ready roughly from the last parameter to the first.
  std::reverse(input.first_plan.begin(), input.first_plan.end());
  input.parameters = std::move(parameters);
  input.options = std::move(options);
  input.audience = audience;
  input.gradient_dtype = gradient_dtype;
  engine_ = make_engine(std::move(input));
}

Reducer::~Reducer() = default;

void Reducer::prepare_forward() {
  engine_->prepare_forward();
  is_forward_prepared_ = true;
}

void Reducer::prepare(const std::vector<at::Tensor>& outputs) {
  if (!is_forward_prepared_) engine_->prepare_forward();
  is_forward_prepared_ = false;
  engine_->prepare(outputs);
}

void Reducer::register_comm_hook(CommHook hook) {
  TORCH_CHECK_TYPE(hook, "Communication hook must be callable.");
  TORCH_CHECK(!has_comm_hook_, "register_comm_hook or register_builtin_comm_hook can only be called once.");
  engine_->register_comm_hook(std::move(hook));
  has_comm_hook_ = true;
  comm_hook_name_ = "custom";
  if (gradient_norm_) gradient_norm_->look_at_all();
}

void Reducer::register_builtin_comm_hook(BuiltinCommHookType comm_hook_type) {
  TORCH_CHECK(!has_comm_hook_, "register_builtin_comm_hook or register_comm_hook can only be called once.");
  const auto register_as = [this](const char* name, auto hook) {
    // Uses the group that the reducer has at that time.
    register_comm_hook([this, hook](GradBucket& bucket) { return hook(group_, bucket); });
    comm_hook_name_ = name;
  };
  switch (comm_hook_type) {
    case BuiltinCommHookType::kAllReduce:
      return register_as("BuiltinCommHookType.ALLREDUCE", allreduce_hook);
    case BuiltinCommHookType::kFp16Compress:
      return register_as("BuiltinCommHookType.FP16_COMPRESS", fp16_compress_hook);
  }
  TORCH_CHECK_VALUE(false, "Unknown built-in DDP comm hook type is provided. No comm hook will be used.");
}

void Reducer::install_futures(const std::vector<CommHookFuture>& futures) { engine_->install_futures(futures); }

void Reducer::update_process_group(const Group& group) {
  engine_->reset();
  is_forward_prepared_ = false;
  if (!is_member(group)) return;
  group_ = group;
  engine_->update_process_group(group);
  if (gradient_norm_) gradient_norm_->use_group(group);
}

void Reducer::remove_autograd_hooks() { engine_->remove_hooks(); }

void Reducer::check_not_observed() const {
  TORCH_CHECK(!fused_step_ && !gradient_norm_,
              "[cohort] fuse_step and track_gradient_norm exclude each other, and each can only be called once.");
}

void Reducer::fuse_step(torch::optim::Optimizer& optimizer) {
  check_not_observed();
  TORCH_CHECK(
      !expects_sparse_,
      "[cohort] fuse_step does not support sparse gradients. Call the optimizer's step() after backward instead.");
  auto step = std::make_unique<FusedStep>(optimizer, parameters_);
  engine_->observe(*step);
  fused_step_ = std::move(step);
}

void Reducer::track_gradient_norm(double norm_type) {
  check_not_observed();
  TORCH_CHECK(!expects_sparse_,
              "[cohort] track_gradient_norm does not support sparse gradients. Use clip_grad_norm_ after backward.");
  TORCH_CHECK_NOT_IMPLEMENTED(std::none_of(parameters_.begin(), parameters_.end(), parallel::is_sharded),
                              "[cohort] track_gradient_norm does not support tensor-parallel layers, whose other "
                              "shards are on other ranks. Use clip_grad_norm_ after backward.");
  auto norm = std::make_unique<GradientNorm>(group_, parameters_, norm_type);
  if (has_comm_hook_) norm->look_at_all();
  engine_->observe(*norm);
  gradient_norm_ = std::move(norm);
}

at::Tensor Reducer::gradient_norm() const {
  TORCH_CHECK(gradient_norm_, "[cohort] gradient_norm: call track_gradient_norm first");
  return gradient_norm_->value();
}

void Reducer::divide_by_live_ranks(const c10::intrusive_ptr<c10d::Work>& count, int num_live) {
  engine_->divide_by_live_ranks(count, num_live);
}

void Reducer::shadow_step() {
  is_forward_prepared_ = false;
  engine_->shadow_step();
}

bool Reducer::needs_outputs() const { return engine_->needs_outputs(); }

bool Reducer::is_expecting() const { return engine_->is_expecting(); }

void Reducer::prepare_again() { engine_->prepare({}); }

void Reducer::finalize() { engine_->finalize(); }

std::vector<std::vector<size_t>> Reducer::buckets() const { return engine_->buckets(); }

bool Reducer::has_rebuilt_buckets() const { return engine_->has_rebuilt_buckets(); }

}  // namespace cohort::ddp
