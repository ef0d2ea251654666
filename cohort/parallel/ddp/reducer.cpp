#include "cohort/parallel/ddp/reducer.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

#include "cohort/comm/watch/unwrapped_training.h"
#include "cohort/parallel/ddp/engine.h"
#include "cohort/parallel/ddp/reducer_errors.h"
#include "cohort/parallel/module/synchronize.h"

namespace cohort::ddp {
namespace {

void settle_options(const std::vector<at::Tensor>& parameters, ReducerOptions& options) {
  TORCH_CHECK_VALUE(!parameters.empty(), "ddp::Reducer needs at least one parameter");
  for (size_t i = 0; i < parameters.size(); ++i) {
    TORCH_CHECK_VALUE(parameters[i].defined() && parameters[i].is_leaf() && parameters[i].requires_grad(),
                      "ddp::Reducer: parameter ", i, " must be a leaf tensor that requires a gradient");
  }
  if (!options.process_group) options.process_group = default_group();
  TORCH_CHECK_VALUE(is_member(options.process_group), "ddp::Reducer: this rank is not a member of the process group");
  auto& sparse = options.expect_sparse_gradient;
  if (sparse.empty()) sparse.assign(parameters.size(), false);
  TORCH_CHECK_VALUE(sparse.size() == parameters.size(),
                    "ddp::ReducerOptions: expect_sparse_gradient needs one flag per parameter, ", parameters.size(),
                    ", got ", sparse.size());
  TORCH_CHECK_VALUE(options.parameter_names.empty() || options.parameter_names.size() == parameters.size(),
                    "ddp::ReducerOptions: parameter_names needs one name per parameter, ", parameters.size(), ", got ",
                    options.parameter_names.size());
  TORCH_CHECK_VALUE(!options.bucket_cap_mb || *options.bucket_cap_mb > 0,
                    "ddp::ReducerOptions: bucket_cap_mb must be positive, got ", options.bucket_cap_mb.value_or(0));
}

std::vector<ParameterInfo> describe(const std::vector<at::Tensor>& parameters, const std::vector<bool>& sparse) {
  std::vector<ParameterInfo> infos;
  for (size_t i = 0; i < parameters.size(); ++i) {
    infos.push_back({parameters[i].scalar_type(), parameters[i].device(), parameters[i].nbytes(), sparse[i]});
  }
  return infos;
}

// Of ddp::Reducer's own users; DistributedDataParallel has verified its module's before.
void verify_parameters(const Group& group, const std::vector<at::Tensor>& parameters) {
  try {
    parallel::verify_same_parameters(group, parameters);
  } catch (const c10::DistError&) {  // the ranks' exchange has failed
    throw;
  } catch (const c10::Error& error) {
    TORCH_CHECK(false,
                different_parameters_message(group->getRank(), group->getSize(), error.what_without_backtrace()));
  }
}

std::unique_ptr<GradientEngine> make_engine(EngineInput input) {
  auto engine = input.options.engine;
  if (engine == Engine::kAuto) {
    const bool on_cpu = std::all_of(input.parameters.begin(), input.parameters.end(),
                                    [](const at::Tensor& parameter) { return parameter.is_cpu(); });
    engine = on_cpu ? Engine::kCohort : Engine::kC10d;
  }
  switch (engine) {
    case Engine::kC10d:
      return make_c10d_engine(std::move(input));
    case Engine::kInline:
      return make_inline_engine(std::move(input));
    default:
      return make_overlap_engine(std::move(input));
  }
}

}  // namespace

Reducer::Reducer(std::vector<at::Tensor> parameters, ReducerOptions options)
    : Reducer(std::move(parameters), std::move(options), Reader::kReducer) {}

Reducer::Reducer(std::vector<at::Tensor> parameters, ReducerOptions options, Reader reader) {
  comm::gradients_are_exchanged();
  settle_options(parameters, options);
  if (options.verify_parameters && options.process_group->getSize() > 1) {
    verify_parameters(options.process_group, parameters);
  }
  EngineInput input;
  input.capacity = bucket_capacity(options.bucket_cap_mb);
  input.infos = describe(parameters, options.expect_sparse_gradient);
  input.first_plan =
      plan_buckets(input.infos, initial_limits(input.capacity, options.find_unused_parameters, options.static_graph));
  // Gradients become ready roughly from the last parameter to the first.
  std::reverse(input.first_plan.begin(), input.first_plan.end());
  input.parameters = std::move(parameters);
  input.options = std::move(options);
  input.reader = reader;
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

void Reducer::finalize() { engine_->finalize(); }

std::vector<std::vector<size_t>> Reducer::buckets() const { return engine_->buckets(); }

bool Reducer::has_rebuilt_buckets() const { return engine_->has_rebuilt_buckets(); }

}  // namespace cohort::ddp
