// The programs of docs/guide/schedules_and_metrics.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/checkpoint/file/torch_file.h>
#include <cohort/checkpoint/optimizer/optimizer_state.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/data/datasets/tensor_dataset.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/data/samplers/distributed_sampler.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/train/metrics/accuracy.h>
#include <cohort/train/metrics/metric.h>
#include <cohort/train/optim/averaged_model.h>
#include <cohort/train/optim/lr_scheduler.h>
#include <cohort/train/optim/update_bn.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "guide.h"

namespace guide {
namespace {

namespace F = torch::nn::functional;

void take_step(torch::nn::Linear& net, torch::optim::Optimizer& optimizer) {
  optimizer.zero_grad();
  F::mse_loss(net(torch::randn({4, 8})), torch::randn({4, 3})).backward();
  optimizer.step();
}

void schedule() {
  torch::nn::Linear net(8, 3);
  cohort::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
  auto warm_up = std::make_shared<cohort::optim::LinearLR>(optimizer, /*start_factor=*/0.1, /*end_factor=*/1.0, 10);
  auto cosine = std::make_shared<cohort::optim::CosineAnnealingLR>(optimizer, /*t_max=*/90, /*eta_min=*/1e-5);
  cohort::optim::SequentialLR scheduler(optimizer, {warm_up, cosine}, /*milestones=*/{10});
  for (int step = 0; step < 100; ++step) {
    take_step(net, optimizer);
    scheduler.step();
  }
  TORCH_CHECK(scheduler.get_last_lr()[0] < 1.1e-5);
}

void one_cycle() {
  torch::nn::Linear net(8, 3);
  cohort::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  cohort::optim::OneCycleLR scheduler(optimizer, /*max_lr=*/0.1, {.epochs = 5, .steps_per_epoch = 20});
  for (int step = 0; step < 100; ++step) {
    take_step(net, optimizer);
    scheduler.step();
  }
}

void plateau() {
  torch::nn::Linear net(8, 3);
  cohort::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
  cohort::optim::ReduceLROnPlateau scheduler(optimizer, {.factor = 0.5, .patience = 2});
  for (const double validation_loss : {3.0, 2.0, 2.1, 2.2, 2.3}) scheduler.step(validation_loss);
  TORCH_CHECK(scheduler.get_last_lr()[0] == 5e-4);
}

void go_on() {
  const std::string path = std::filesystem::temp_directory_path() / ("run-" + std::to_string(getpid()) + ".pt");
  torch::nn::Linear net(8, 3);
  cohort::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
  cohort::optim::StepLR scheduler(optimizer, /*step_size=*/30, /*gamma=*/0.5);
  {
    c10::impl::GenericDict run(c10::StringType::get(), c10::AnyType::get());
    run.insert("optimizer", cohort::checkpoint::optimizer_state_dict(optimizer));
    run.insert("scheduler", scheduler.state_dict());
    cohort::checkpoint::save(run, path);
  }
  const auto run = cohort::checkpoint::load(path).toGenericDict();
  cohort::checkpoint::load_optimizer_state_dict(optimizer, run.at("optimizer"));
  scheduler.load_state_dict(run.at("scheduler"));
  std::filesystem::remove(path);
}

void average() {
  torch::nn::Linear net(8, 3);
  cohort::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
  cohort::optim::AveragedModel ema(net, {.multi_avg_fn = cohort::optim::get_ema_multi_avg_fn(0.99)});
  for (int step = 0; step < 20; ++step) {
    take_step(net, optimizer);
    ema->update_parameters(*net);
  }
  ema->module().eval();
  const at::Tensor output = ema(torch::randn({4, 8}));
  TORCH_CHECK(output.size(1) == 3);
}

void mean_with_batch_norm() {
  torch::nn::Sequential net(torch::nn::Linear(8, 8), torch::nn::BatchNorm1d(8), torch::nn::Linear(8, 3));
  cohort::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  const std::vector<at::Tensor> batches{torch::randn({16, 8}), torch::randn({16, 8})};
  cohort::optim::AveragedModel mean(net);
  cohort::optim::SWALR scheduler(optimizer, /*swa_lr=*/0.05, /*anneal_epochs=*/5);
  for (int epoch = 0; epoch < 10; ++epoch) {
    for (const auto& batch : batches) {
      optimizer.zero_grad();
      net->forward(batch).square().mean().backward();
      optimizer.step();
    }
    mean->update_parameters(*net);
    scheduler.step();
  }
  cohort::optim::update_bn(batches, mean);
}

struct Recall : cohort::train::Metric {
  Recall() : Metric(2) {}
  void update(const at::Tensor& found, const at::Tensor& wanted) {
    add({found.logical_and(wanted).sum(), wanted.sum()});
  }
  double value(const std::vector<double>& sums) const override { return sums[0] / sums[1]; }
};

void evaluate() {
  torch::nn::Linear net(8, 3);
  cohort::data::TensorDataset dataset(torch::randn({101, 8}), torch::randint(3, {101}, torch::kLong));
  auto sampler = std::make_shared<cohort::data::DistributedSampler>(
      dataset.size(), cohort::data::DistributedSamplerOptions{.shuffle = false});
  cohort::data::DataLoader loader(dataset, {.batch_size = 16, .sampler = sampler});
  const torch::NoGradGuard no_grad;
  cohort::train::Mean loss;
  cohort::train::Accuracy top1, top2({.top_k = 2});
  Recall recall;
  cohort::train::RealSamples real(dataset.size());
  for (auto& [input, labels] : loader) {
    const int64_t count = real.take(labels.size(0));  // without the samples that the sampler repeats
    const at::Tensor target = labels.narrow(0, 0, count);
    const at::Tensor logits = net(input.narrow(0, 0, count));
    if (count > 0) loss.update(F::cross_entropy(logits, target), count);
    top1.update(logits, target);
    top2.update(logits, target);
    recall.update(logits.argmax(1) == 2, target == 2);
  }
  const cohort::train::MetricValues values =
      cohort::train::compute({{"loss", &loss}, {"top-1", &top1}, {"top-2", &top2}, {"recall", &recall}});
  TORCH_CHECK(values.size() == 4 && std::isfinite(values[0].second) && loss.sums().numel() == 2);
}

}  // namespace

void run_schedules_and_metrics() {
  cohort::init_process_group();
  schedule();
  one_cycle();
  plateau();
  go_on();
  average();
  mean_with_batch_norm();
  evaluate();
  cohort::destroy_process_group();
}

}  // namespace guide
