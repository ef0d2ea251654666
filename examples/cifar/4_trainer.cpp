// ResNet-18 on CIFAR-10, step 4: the same with a Trainer, which is all of the steps before it: alone, or under a launcher.
//
//   build/bin/cohort-data make cifar10 --root data       # a small stand-in; `fetch` gets the real set
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/cifar_trainer data 10 [FOLDER]
//
// With FOLDER it keeps checkpoints there, and goes on from the newest. Prints a line for each epoch, and at the end the accuracy
// on the test set.
#include <cohort/data/datasets/cifar.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/data/transforms/compose.h>
#include <cohort/data/transforms/crop.h>
#include <cohort/data/transforms/to_tensor.h>
#include <cohort/data/transforms/transformed_dataset.h>
#include <cohort/models/resnet.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/train/trainer/seed_everything.h>
#include <cohort/train/trainer/trainer.h>
#include <torch/nn/functional/loss.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace data = cohort::data;
namespace train = cohort::train;

namespace {

// Right answers, and all of them.
struct Accuracy {
  void update(const at::Tensor& scores, const at::Tensor& labels) {
    counts[0] += scores.argmax(1).eq(labels).sum();
    counts[1] += labels.size(0);
  }
  void reset() { counts.zero_(); }
  at::Tensor sums() const { return counts; }
  double value(const std::vector<double>& sums) const { return sums[0] / sums[1]; }
  at::Tensor counts = torch::zeros({2}, torch::kDouble);
};

struct Classify {
  cohort::models::ResNet model = cohort::models::resnet18({.num_classes = 10, .width = 16, .is_small_input = true});
  cohort::optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)};
  at::Tensor loss(const at::Tensor& scores, const at::Tensor& labels) {
    return torch::nn::functional::cross_entropy(scores, labels);
  }
  std::vector<train::TaskMetric> metrics = {{"accuracy", Accuracy()}};
};

}  // namespace

int main(int argc, char** argv) {
  const std::string root = argc > 1 ? argv[1] : "data";
  train::seed_everything(1);
  const data::TransformedDataset images(data::CIFAR10(root),
                                        data::Compose({data::RandomCrop(32, {.padding = {2}}), data::ToTensor()}));
  const data::TransformedDataset held_out(data::CIFAR10(root, {.train = false}), data::Compose({data::ToTensor()}));
  const data::DataLoader test(held_out, {.batch_size = 100});

  Classify task;
  train::TrainerOptions options{.max_epochs = argc > 2 ? std::atoi(argv[2]) : 10};
  options.checkpoint.folder = argc > 3 ? argv[3] : "";
  train::Trainer trainer(options);
  trainer.fit(task,
              data::DataLoader(images, {.batch_size = 32 / trainer.world_size(), .shuffle = true, .num_workers = 1}),
              test);
  trainer.test(task, test);
  if (trainer.is_first_rank()) std::printf("test accuracy %.3f\n", *trainer.metric("test/accuracy"));
  return 0;
}
