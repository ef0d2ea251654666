// The programs of docs/guide/mixed_precision.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/comm/group/process_group.h>
#include <cohort/extras/models/resnet.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/norm/convert_sync_batch_norm.h>
#include <cohort/parallel/norm/sync_batch_norm.h>
#include <cohort/parallel/optim/clip_grad.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/parallel/optim/grad_scaler.h>
#include <cohort/parallel/precision/autocast.h>
#include <cohort/parallel/precision/autocast_function.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "guide.h"

namespace guide {
namespace {

namespace F = torch::nn::functional;

void train_under_autocast() {
  cohort::DistributedDataParallel model(cohort::models::resnet18({.num_classes = 10, .width = 8}));
  cohort::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  const at::Tensor images = torch::randn({4, 3, 32, 32}), labels = torch::randint(10, {4});
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const cohort::Autocast autocast(at::kCPU);  // bfloat16; at::kCUDA: float16
      loss = F::cross_entropy(model(images), labels);
    }
    loss.backward();
    cohort::nn::utils::clip_grad_norm_(model->parameters(), /*max_norm=*/1.0);
    optimizer.step();
  }
}

void nest_regions(const at::Tensor& x) {
  const cohort::Autocast autocast(at::kCPU, {.dtype = torch::kHalf});
  const at::Tensor low = torch::mm(x, x);  // float16
  const cohort::Autocast off(at::kCPU, {.enabled = false});
  const at::Tensor full = torch::mm(low.to(torch::kFloat), x);  // float32
  TORCH_CHECK(low.scalar_type() == at::kHalf && full.scalar_type() == at::kFloat);
}

struct ExactProduct : torch::autograd::Function<ExactProduct> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::Tensor a, at::Tensor b) {
    const auto region = cohort::custom_fwd(ctx, at::kCPU, /*cast_inputs=*/torch::kFloat);
    a = region.cast(a);
    b = region.cast(b);
    ctx->save_for_backward({a, b});
    return a.mm(b);  // float32, under autocast, too
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const auto region = cohort::custom_bwd(ctx, at::kCPU);
    const auto saved = ctx->get_saved_variables();
    return {gradients[0].mm(saved[1].t()), saved[0].t().mm(gradients[0])};
  }
};

void scale_float16() {
  cohort::DistributedDataParallel model(torch::nn::Linear(8, 4));
  cohort::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
  cohort::amp::GradScaler scaler({.device = at::kCPU});  // default: the machine's accelerator
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const auto run_pass = [&](const at::Tensor& x) {
      at::Tensor loss;
      {
        const cohort::Autocast autocast(at::kCPU, {.dtype = torch::kHalf});
        loss = model(x).square().mean() / 2;
      }
      scaler.scale(loss).backward();
    };
    {
      const auto local = model->no_sync();
      run_pass(torch::randn({4, 8}));
    }
    run_pass(torch::randn({4, 8}));
    scaler.unscale_(optimizer);
    cohort::nn::utils::clip_grad_norm_(model->parameters(), /*max_norm=*/1.0);
    scaler.step(optimizer);
    scaler.update();
  }
}

void train_in_bfloat16() {
  torch::nn::Linear net(8, 4);
  net->to(torch::kBFloat16);
  cohort::DistributedDataParallel model(net);
  cohort::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
  model(torch::randn({4, 8}).to(torch::kBFloat16)).to(torch::kFloat).square().mean().backward();
  optimizer.step();
}

void synchronize_batch_norm() {
  auto net = cohort::convert_sync_batchnorm(cohort::models::resnet18({.num_classes = 10, .width = 8}));
  cohort::DistributedDataParallel model(net);
  model(torch::randn({4 + cohort::get_rank(), 3, 32, 32})).sum().backward();
  TORCH_CHECK(cohort::norm::has_sync_batch_norm(*net));
}

void write_one() {
  cohort::SyncBatchNorm norm(64, cohort::SyncBatchNormOptions{.momentum = 0.01});
  norm(torch::randn({2, 64, 7, 7}));
}

}  // namespace

void run_mixed_precision() {
  cohort::init_process_group();
  train_under_autocast();
  nest_regions(torch::randn({4, 4}));
  {
    const cohort::Autocast autocast(at::kCPU);
    const at::Tensor x = torch::randn({4, 4}, at::requires_grad());
    ExactProduct::apply(x, x).sum().backward();
  }
  scale_float16();
  train_in_bfloat16();
  synchronize_batch_norm();
  write_one();
  cohort::destroy_process_group();
}

}  // namespace guide
