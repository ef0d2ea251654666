// The programs of docs/guide/ddp.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/comm/collectives/collectives.h>
#include <cohort/parallel/ddp/comm_hook_type.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/ddp/hooks/all_reduce_hook.h>
#include <cohort/parallel/ddp/hooks/compress_hooks.h>
#include <cohort/parallel/ddp/hooks/power_sgd_hook.h>
#include <cohort/parallel/ddp/reducer.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <memory>
#include <vector>

#include "guide.h"

namespace guide {
namespace {

namespace F = torch::nn::functional;

struct NetImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return output(norm(torch::relu(hidden(x)))); }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(8, 16));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(16));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(16, 1));
};
TORCH_MODULE(Net);

void wrap_and_train() {
  Net net;
  cohort::DistributedDataParallel ddp(net);  // every rank starts with rank 0's parameters and buffers
  torch::optim::SGD optimizer(ddp->parameters(), 0.1);

  const at::Tensor x = torch::randn({4, 8}), y = torch::randn({4, 1});
  const at::Tensor loss = F::mse_loss(ddp(x), y);  // or ddp->forward(x)
  optimizer.zero_grad();
  loss.backward();   // gradients are averaged over the ranks when it returns
  optimizer.step();  // so every rank makes the same step

  torch::NoGradGuard no_grad;
  ddp->eval();
  const at::Tensor prediction = ddp->module().forward(x);  // without DDP: nothing is exchanged
  TORCH_CHECK(prediction.defined());
}

void choose_options() {
  cohort::ddp::Options options;
  options.bucket_cap_mb = 50;
  options.find_unused_parameters = true;
  cohort::DistributedDataParallel ddp(Net{}, options);

  cohort::DistributedDataParallel same(Net{}, {.bucket_cap_mb = 50, .find_unused_parameters = true});
}

void compute_in_bfloat16() {
  namespace ddp = cohort::ddp;
  ddp::MixedPrecision precision{.param_dtype = torch::kBFloat16, .reduce_dtype = torch::kFloat};
  precision.buffer_dtype = torch::kBFloat16;  // as Net's BatchNorm needs
  cohort::DistributedDataParallel model(Net{}, {.mixed_precision = precision});
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const at::Tensor y = model(torch::randn({4, 8}));  // bfloat16, as are inputs and parameters from here
  y.to(torch::kFloat).square().mean().backward();
  optimizer.step();  // parameters and gradients are float again
}

// Containers hold a pointer to the module, whose forward has one signature.
void put_into_containers() {
  using Wrapped = cohort::DistributedDataParallel<NetImpl>;
  torch::nn::Sequential model(Wrapped(Net{}), torch::nn::Tanh());
  const at::Tensor y = model->forward(torch::randn({4, 8}));
  TORCH_CHECK(y.defined());
}

void accumulate() {
  cohort::DistributedDataParallel ddp(Net{});
  const auto batches = torch::randn({3, 4, 8}).unbind();
  for (size_t i = 0; i < batches.size(); ++i) {
    if (i + 1 < batches.size()) {
      const auto local = ddp->no_sync();  // while it lives, gradients stay on this rank
      (ddp(batches[i]).sum() / batches.size()).backward();
    } else {
      (ddp(batches[i]).sum() / batches.size()).backward();  // averages the sum of all gradients
    }
  }
}

// A module of whose forward pass different ranks use different parts.
struct BranchesImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, bool uses_left) { return uses_left ? left(x) : right(x); }
  torch::nn::Linear left = register_module("left", torch::nn::Linear(8, 1));
  torch::nn::Linear right = register_module("right", torch::nn::Linear(8, 1));
};
TORCH_MODULE(Branches);

void leave_parameters_out() {
  cohort::DistributedDataParallel ddp(Branches{}, {.find_unused_parameters = true});
  ddp(torch::randn({4, 8}), /*uses_left=*/cohort::get_rank() == 0).sum().backward();
}

void stop_at_the_smallest_number(const std::vector<at::Tensor>& batches) {
  at::Tensor count = torch::tensor(static_cast<int64_t>(batches.size()));
  cohort::all_reduce(count, cohort::ReduceOp::MIN);
  cohort::DistributedDataParallel ddp(Net{});
  for (int64_t i = 0; i < count.item<int64_t>(); ++i) ddp(batches[i]).sum().backward();
}

void train_until_all_have_ended(const std::vector<at::Tensor>& batches) {
  cohort::DistributedDataParallel ddp(Net{});
  torch::optim::SGD optimizer(ddp->parameters(), 0.1);
  {
    const auto join = ddp->join();
    for (const auto& batch : batches) {
      optimizer.zero_grad();
      ddp(batch).sum().backward();
      optimizer.step();
    }
  }  // ranks whose batches have ended wait here for the others
}

void register_a_ready_hook() {
  cohort::DistributedDataParallel ddp(Net{});
  cohort::ddp::register_ddp_comm_hook(cohort::ddp::DDPCommHookType::kFp16Compress, ddp);
  ddp(torch::randn({4, 8})).sum().backward();
}

void compress_by_power_sgd() {
  namespace ddp = cohort::ddp;
  cohort::DistributedDataParallel model(Net{});
  auto state = std::make_shared<ddp::PowerSGDState>(
      ddp::PowerSGDOptions{.matrix_approximation_rank = 2, .start_power_sgd_iter = 2, .min_compression_rate = 1});
  model->register_comm_hook(state, ddp::fp16_compress_wrapper(ddp::power_sgd_hook));
  for (int step = 0; step < 3; ++step) model(torch::randn({4, 8})).sum().backward();
  TORCH_CHECK(state->iter() == 3);
}

void write_a_hook() {
  cohort::DistributedDataParallel ddp(Net{});
  auto clipped = [](double limit, cohort::ddp::GradBucket& bucket) {
    bucket.buffer().clamp_(-limit, limit);  // this rank's gradients, not divided yet
    return cohort::ddp::allreduce_hook(cohort::default_group(), bucket);
  };
  ddp->register_comm_hook(/*state=*/0.5, clipped);
  ddp(torch::randn({4, 8})).sum().backward();
}

// Returns what forward computed in a type of its own.
struct Output {
  at::Tensor value;
  at::Tensor penalty;
};
std::vector<at::Tensor> cohort_tensors(const Output& output) { return {output.value, output.penalty}; }

struct PenalizedImpl : torch::nn::Module {
  Output forward(const at::Tensor& x) { return {layer(x), layer->weight.pow(2).sum()}; }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(8, 1));
};
TORCH_MODULE(Penalized);

void return_a_struct() {
  cohort::DistributedDataParallel ddp(Penalized{}, {.find_unused_parameters = true});
  const Output output = ddp(torch::randn({4, 8}));
  (output.value.sum() + output.penalty).backward();
}

void reduce_without_a_module() {
  std::vector<at::Tensor> parameters = {torch::randn({8, 1}, torch::requires_grad()),
                                        torch::randn({1}, torch::requires_grad())};
  for (auto& parameter : parameters) cohort::broadcast(parameter.detach(), /*src=*/0);  // equal at the start
  cohort::ddp::Reducer reducer(parameters, {.parameter_names = {"weight", "bias"}});
  for (int step = 0; step < 3; ++step) {
    for (auto& parameter : parameters) parameter.mutable_grad() = at::Tensor();
    reducer.prepare();
    (torch::randn({4, 8}).mm(parameters[0]) + parameters[1]).sum().backward();  // averages the gradients
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters) parameter -= 0.1 * parameter.grad();
  }
  TORCH_CHECK(reducer.has_rebuilt_buckets() && reducer.buckets().size() == 1);
}

void step_inside_backward() {
  cohort::DistributedDataParallel ddp(Net{});
  torch::optim::AdamW optimizer(ddp->parameters(), torch::optim::AdamWOptions(1e-3));
  ddp->fuse_step(optimizer);
  for (int step = 0; step < 3; ++step) {
    ddp(torch::randn({4, 8})).sum().backward();  // averages gradients and updates the parameters
  }
}

}  // namespace

void run_ddp() {
  cohort::init_process_group();
  wrap_and_train();
  choose_options();
  compute_in_bfloat16();
  put_into_containers();
  accumulate();
  leave_parameters_out();
  stop_at_the_smallest_number(torch::randn({3 + cohort::get_rank(), 4, 8}).unbind());
  train_until_all_have_ended(torch::randn({3 + cohort::get_rank(), 4, 8}).unbind());
  register_a_ready_hook();
  compress_by_power_sgd();
  write_a_hook();
  return_a_struct();
  reduce_without_a_module();
  step_inside_backward();
  cohort::destroy_process_group();
}

}  // namespace guide
