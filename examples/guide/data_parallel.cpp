// The programs of docs/guide/data_parallel.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/comm/group/device.h>
#include <cohort/parallel/data_parallel/data_parallel.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <tuple>
#include <vector>

#include "guide.h"

namespace guide {
namespace {

namespace F = torch::nn::functional;

struct ClassifierImpl : torch::nn::Cloneable<ClassifierImpl> {
  ClassifierImpl() { ClassifierImpl::reset(); }
  void reset() override {
    hidden = register_module("hidden", torch::nn::Linear(8, 16));
    output = register_module("output", torch::nn::Linear(16, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return output(torch::relu(hidden(x))); }
  torch::nn::Linear hidden{nullptr}, output{nullptr};
};
TORCH_MODULE(Classifier);

void train_in_one_process() {
  Classifier net;
  cohort::DataParallel model(net, {at::kCPU, at::kCPU});  // or model(net): all devices of the accelerator
  torch::optim::SGD optimizer(net->parameters(), 0.1);

  const at::Tensor x = torch::randn({6, 8}), y = torch::randn({6, 2});
  const at::Tensor loss = F::mse_loss(model(x), y);  // each device has three rows
  optimizer.zero_grad();
  loss.backward();  // net gets the sum of all replicas' gradients
  optimizer.step();
}

void train_in_several_processes() {
  cohort::init_process_group();
  Classifier net;
  cohort::DistributedDataParallel model(net);
  torch::optim::SGD optimizer(net->parameters(), 0.1);

  const at::Tensor x = torch::randn({3, 8}), y = torch::randn({3, 2});  // this rank's own rows
  const at::Tensor loss = F::mse_loss(model(x), y);
  optimizer.zero_grad();
  loss.backward();  // gradients are averaged over the ranks
  optimizer.step();
  cohort::destroy_process_group();
}

struct Boxes {
  at::Tensor corners;
  at::Tensor scores;
};
std::vector<at::Tensor*> cohort_tensor_fields(Boxes& boxes) { return {&boxes.corners, &boxes.scores}; }

struct DetectorImpl : torch::nn::Cloneable<DetectorImpl> {
  DetectorImpl() { DetectorImpl::reset(); }
  void reset() override { layer = register_module("layer", torch::nn::Linear(8, 4)); }
  Boxes forward(const at::Tensor& x) { return {layer(x), x.sum(1)}; }
  torch::nn::Linear layer{nullptr};
};
TORCH_MODULE(Detector);

void return_a_struct_of_parts() {
  cohort::DataParallel model(Detector{}, {at::kCPU, at::kCPU});
  const Boxes boxes = model(torch::randn({6, 8}));
  TORCH_CHECK(boxes.corners.size(0) == 6 && boxes.scores.size(0) == 6);
}

void use_the_parts() {
  namespace parallel = cohort::nn::parallel;
  const parallel::Devices devices{at::kCPU, at::kCPU};
  const Classifier net;
  const auto inputs = parallel::scatter(std::tuple{torch::randn({6, 8})}, devices);
  const auto replicas = parallel::replicate(net.ptr(), devices);
  const auto outputs = parallel::parallel_apply(replicas, inputs, devices);
  const at::Tensor joined = parallel::gather(outputs, at::kCPU);
  TORCH_CHECK(joined.size(0) == 6);

  const at::Tensor same = cohort::data_parallel(net, torch::randn({6, 8}), devices);  // the same in one call
  TORCH_CHECK(same.size(0) == 6);
}

}  // namespace

void run_data_parallel() {
  train_in_one_process();
  train_in_several_processes();
  return_a_struct_of_parts();
  use_the_parts();
}

}  // namespace guide
