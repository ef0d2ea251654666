// ResNet-18 on CIFAR-10, step 4: additions for a longer run. It differs from step 3 in mixed precision, sync batch norm, a
// checkpoint of rank 0 from which the next run resumes, and event files for TensorBoard.
//
//   build/bin/cohort-data make cifar10 --root data       # a small synthetic dataset; `fetch` gets CIFAR-10
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/cifar_long_run data 10 runs/cifar
//   .venv/bin/tensorboard --logdir runs/cifar
//
// prints, for each epoch, the mean loss, and at the end the accuracy on the test set. On two nodes: 5_two_nodes.sh; with SLURM:
// 6_slurm.sbatch.
#include <cohort/checkpoint/checkpointer/training_checkpoint.h>
#include <cohort/comm/group/device.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/data/samplers/distributed_sampler.h>
#include <cohort/extras/data/datasets/cifar.h>
#include <cohort/extras/data/transforms/compose.h>
#include <cohort/extras/data/transforms/crop.h>
#include <cohort/extras/data/transforms/to_tensor.h>
#include <cohort/extras/data/transforms/transformed_dataset.h>
#include <cohort/extras/models/resnet.h>
#include <cohort/extras/train/logging/summary_writer.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/norm/convert_sync_batch_norm.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/parallel/precision/autocast.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace data = cohort::data;
namespace F = torch::nn::functional;

int main(int argc, char** argv) {
  const std::string root = argc > 1 ? argv[1] : "data";
  const int num_epochs = argc > 2 ? std::atoi(argv[2]) : 10;
  const std::string folder = argc > 3 ? argv[3] : "runs/cifar";
  const std::string checkpoint = folder + "/checkpoint.safetensors";
  cohort::init_process_group();
  torch::manual_seed(1);
  const data::TransformedDataset train(data::CIFAR10(root),
                                       data::Compose({data::RandomCrop(32, {.padding = {2}}), data::ToTensor()}));
  const data::TransformedDataset test(data::CIFAR10(root, {.train = false}), data::Compose({data::ToTensor()}));
  const auto sampler = std::make_shared<data::DistributedSampler>(train.size());
  const data::DataLoader loader(train, {.batch_size = 16, .sampler = sampler, .num_workers = 1});

  const at::Device device = cohort::current_device();
  auto net = cohort::convert_sync_batchnorm(
      cohort::models::resnet18({.num_classes = 10, .width = 16, .is_small_input = true}));
  net->to(device);
  cohort::DistributedDataParallel model(net);
  cohort::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
  int64_t first_epoch = 0;
  if (std::filesystem::exists(checkpoint)) {
    first_epoch = cohort::checkpoint::load_checkpoint(*net, &optimizer, checkpoint).epoch;
  }
  cohort::barrier();  // rank 0 must not write the first checkpoint while others look for it
  std::optional<cohort::train::SummaryWriter> writer;
  if (cohort::get_rank() == 0) writer.emplace(folder, cohort::train::SummaryWriterOptions{.purge_step = first_epoch});
  for (int64_t epoch = first_epoch; epoch < num_epochs; ++epoch) {
    train.set_epoch(epoch);
    sampler->set_epoch(epoch);
    double sum = 0.0;
    for (auto& [images, labels] : loader) {
      optimizer.zero_grad();
      at::Tensor loss;
      {
        const cohort::Autocast autocast(device.type(), {.dtype = torch::kBFloat16});
        loss = F::cross_entropy(model(images.to(device)), labels.to(device));
      }
      loss.backward();
      optimizer.step();
      sum += loss.item<double>();
    }
    if (cohort::get_rank() == 0) {
      const double mean = sum / static_cast<double>(loader.size());
      std::printf("epoch %d: loss %.4f\n", static_cast<int>(epoch + 1), mean);
      writer->add_scalar("train/loss", mean, epoch);
      cohort::checkpoint::save_checkpoint(*net, &optimizer, checkpoint, {.epoch = epoch + 1});
    }
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
