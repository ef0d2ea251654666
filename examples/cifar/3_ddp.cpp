// ResNet-18 on CIFAR-10, step 3: DistributedDataParallel, one process per device. The process group, the sampler and the wrapper
// differ from step 1.
//
//   build/bin/cohort-data make cifar10 --root data       # a small synthetic dataset; `fetch` gets CIFAR-10
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/cifar_ddp data 10
//
// prints, for each epoch, the mean loss, and at the end the accuracy on the test set.
#include <cohort/comm/group/device.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/data/samplers/distributed_sampler.h>
#include <cohort/extras/data/datasets/cifar.h>
#include <cohort/extras/data/transforms/compose.h>
#include <cohort/extras/data/transforms/crop.h>
#include <cohort/extras/data/transforms/to_tensor.h>
#include <cohort/extras/data/transforms/transformed_dataset.h>
#include <cohort/extras/models/resnet.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace data = cohort::data;
namespace F = torch::nn::functional;

int main(int argc, char** argv) {
  const std::string root = argc > 1 ? argv[1] : "data";
  const int num_epochs = argc > 2 ? std::atoi(argv[2]) : 10;
  cohort::init_process_group();
  torch::manual_seed(1);
  const data::TransformedDataset train(data::CIFAR10(root),
                                       data::Compose({data::RandomCrop(32, {.padding = {2}}), data::ToTensor()}));
  const data::TransformedDataset test(data::CIFAR10(root, {.train = false}), data::Compose({data::ToTensor()}));
  const auto sampler = std::make_shared<data::DistributedSampler>(train.size());
  const data::DataLoader loader(train, {.batch_size = 16, .sampler = sampler, .num_workers = 1});

  const at::Device device = cohort::current_device();
  auto net = cohort::models::resnet18({.num_classes = 10, .width = 16, .is_small_input = true});
  net->to(device);
  cohort::DistributedDataParallel model(net);
  cohort::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
  for (int epoch = 0; epoch < num_epochs; ++epoch) {
    train.set_epoch(epoch);
    sampler->set_epoch(epoch);
    double sum = 0.0;
    for (auto& [images, labels] : loader) {
      optimizer.zero_grad();
      const at::Tensor loss = F::cross_entropy(model(images.to(device)), labels.to(device));
      loss.backward();
      optimizer.step();
      sum += loss.item<double>();
    }
    if (cohort::get_rank() == 0)
      std::printf("epoch %d: loss %.4f\n", epoch + 1, sum / static_cast<double>(loader.size()));
  }

  net->eval();
  const torch::NoGradGuard no_grad;
  int64_t num_right = 0;
  for (auto& [images, labels] : data::DataLoader(test, {.batch_size = 100})) {
    num_right += net(images.to(device)).argmax(1).eq(labels.to(device)).sum().item<int64_t>();
  }
  if (cohort::get_rank() == 0)
    std::printf("test accuracy %.3f\n", static_cast<double>(num_right) / static_cast<double>(test.size()));
  cohort::destroy_process_group();
}
