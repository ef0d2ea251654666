// precision_train CASE START RESULT: trains a small network in mixed precision from the weights and on the data of a file.
// tests/e2e/parallel/precision_test.py makes the same steps in Python; with several ranks it gives each a part of the batch.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <iostream>
#include <optional>
#include <string>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/state/state_dict.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/norm/convert_sync_batch_norm.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/optim/fused_optimizers.h"
#include "cohort/parallel/optim/grad_scaler.h"
#include "cohort/parallel/precision/autocast.h"
#include "cohort/parallel/precision/autocast_function.h"

namespace {

namespace F = torch::nn::functional;
using cohort::checkpoint::StateDict;

// A product that is float32 under autocast, too.
struct ExactProduct : torch::autograd::Function<ExactProduct> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::Tensor a, at::Tensor b) {
    const auto region = cohort::custom_fwd(ctx, at::kCPU, at::kFloat);
    a = region.cast(a);
    b = region.cast(b);
    ctx->save_for_backward({a, b});
    return a.mm(b);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const auto region = cohort::custom_bwd(ctx, at::kCPU);
    const auto saved = ctx->get_saved_variables();
    return {gradients[0].mm(saved[1].t()), saved[0].t().mm(gradients[0])};
  }
};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    conv = register_module("conv", torch::nn::Conv2d(3, 8, 3));
    norm = register_module("norm", torch::nn::BatchNorm2d(8));
    hidden = register_module("hidden", torch::nn::Linear(8, 16));
    head = register_module("head", torch::nn::Linear(16, 5));
    exact = register_parameter("exact", at::zeros({16, 16}));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto y = hidden(norm(conv(x)).relu().mean({2, 3})).relu();
    return head(ExactProduct::apply(y, exact).to(y.scalar_type()));
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear hidden{nullptr}, head{nullptr};
  at::Tensor exact;
};
TORCH_MODULE(Net);

struct Case {
  std::optional<at::ScalarType> autocast_dtype = {};
  bool scales = false;
  bool is_pure_bf16 = false;
};

Case case_of(const std::string& name) {
  if (name == "bf16") return {.autocast_dtype = at::kBFloat16};
  if (name == "fp16_scaler") return {.autocast_dtype = at::kHalf, .scales = true};
  if (name == "pure_bf16") return {.is_pure_bf16 = true};
  return {};
}

template <class Model>
at::Tensor loss_of(const Case& c, Model& model, const at::Tensor& images, const at::Tensor& labels) {
  const cohort::Autocast autocast(at::kCPU, {.dtype = c.autocast_dtype, .enabled = c.autocast_dtype.has_value()});
  return F::cross_entropy(model(images), labels);
}

// Two passes a step, clipped.
StateDict train_alone(const Case& c, Net& net, const StateDict& start) {
  if (c.is_pure_bf16) net->to(at::kBFloat16);
  cohort::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.05));
  cohort::amp::GradScaler scaler({.device = at::kCPU, .growth_interval = 3, .enabled = c.scales});
  StateDict results;
  const auto images = start["images"], labels = start["labels"];
  for (int64_t step = 0; step < images.size(0); ++step) {
    optimizer.zero_grad();
    at::Tensor sum = at::zeros({});
    for (int64_t pass = 0; pass < images.size(1); ++pass) {
      const auto x = c.is_pure_bf16 ? images[step][pass].to(at::kBFloat16) : images[step][pass];
      const auto loss = loss_of(c, net, x, labels[step][pass]) / images.size(1);
      scaler.scale(loss).backward();
      sum += loss.detach();
    }
    scaler.unscale_(optimizer);
    const auto norm = cohort::nn::utils::clip_grad_norm_(net->parameters(), 0.5);
    scaler.step(optimizer);
    scaler.update();
    results.insert("loss." + std::to_string(step), sum.to(at::kFloat));
    results.insert("norm." + std::to_string(step), norm.to(at::kFloat));
    results.insert("scale." + std::to_string(step), at::scalar_tensor(scaler.get_scale()));
  }
  return results;
}

// Each rank trains on its rows, of which there may be none.
StateDict train_synchronized(Net& net, const StateDict& start) {
  cohort::init_process_group("gloo");
  cohort::convert_sync_batchnorm(*net);
  cohort::DistributedDataParallel ddp(net);
  cohort::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto bounds = start["bounds"];
  const auto begin = bounds[cohort::get_rank()].item<int64_t>(), end = bounds[cohort::get_rank() + 1].item<int64_t>();
  const auto images = start["images"].flatten(1, 2), labels = start["labels"].flatten(1, 2);
  StateDict results;
  for (int64_t step = 0; step < images.size(0); ++step) {
    optimizer.zero_grad();
    const auto y = ddp(images[step].slice(0, begin, end));
    const auto rows =
        F::cross_entropy(y, labels[step].slice(0, begin, end), F::CrossEntropyFuncOptions().reduction(torch::kSum));
    const auto loss = rows / images.size(1);
    (loss * cohort::get_world_size()).backward();  // DDP divides the gradients by it
    optimizer.step();
    const auto sum = loss.detach().clone();
    cohort::all_reduce(sum);
    results.insert("loss." + std::to_string(step), sum);
  }
  return results;
}

}  // namespace

int main(int, char** argv) {
  try {
    const std::string name = argv[1];
    const auto start = cohort::checkpoint::load_file(argv[2]);
    Net net;
    StateDict weights;
    for (const auto& entry : start) {
      if (entry.key().starts_with("net.")) weights.insert(entry.key().substr(4), entry.value());
    }
    cohort::checkpoint::load_state_dict(*net, weights);
    auto results = name == "sync" ? train_synchronized(net, start) : train_alone(case_of(name), net, start);
    for (const auto& entry : cohort::checkpoint::state_dict(*net)) results.insert("net." + entry.key(), entry.value());
    const bool is_first = name != "sync" || cohort::get_rank() == 0;
    if (is_first) cohort::checkpoint::save_file(results, argv[3]);
    if (name == "sync") cohort::destroy_process_group();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
