// The tutorials' image classifiers under DistributedDataParallel, on random images, to show only that they run.
//
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/image_classifier --epochs 3
//
// prints, on rank 0,
//   Epoch 1, Batch 0, Loss: 2.3068
//   ...
//   Training Complete!
// --model train_model trains the larger model; --help lists all flags. examples/cifar trains on real images.
#include <cohort/comm/group/device.h>
#include <cohort/data/datasets/tensor_dataset.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/data/samplers/distributed_sampler.h>
#include <cohort/extras/models/small_models.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/train/config/run_config.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <cstdio>
#include <memory>
#include <string>

namespace {

namespace data = cohort::data;

struct Settings {
  std::string model = "image_classifier";
  int64_t epochs = 3;
  int64_t batch_size = 16;
  double lr = 1e-3;
};

template <class Net>
void train(Net net, const Settings& settings) {
  const at::Device device = cohort::current_device();
  net->to(device);
  cohort::DistributedDataParallel model(net);
  cohort::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(settings.lr));

  torch::manual_seed(0);  // all ranks make the same 100 images, and read different ones
  const data::TensorDataset<2> images(torch::randn({100, 3, 32, 32}), torch::randint(0, 10, {100}));
  const auto sampler = std::make_shared<data::DistributedSampler>(images.size());
  const data::DataLoader loader(images, {.batch_size = settings.batch_size, .sampler = sampler, .num_workers = 1});
  for (int64_t epoch = 0; epoch < settings.epochs; ++epoch) {
    sampler->set_epoch(epoch);
    int batch = 0;
    for (auto& [inputs, labels] : loader) {
      optimizer.zero_grad();
      const at::Tensor loss = torch::nn::functional::cross_entropy(model(inputs.to(device)), labels.to(device));
      loss.backward();
      optimizer.step();
      if (cohort::get_rank() == 0 && batch % 5 == 0) {
        std::printf("Epoch %d, Batch %d, Loss: %.4f\n", static_cast<int>(epoch + 1), batch, loss.item<double>());
      }
      ++batch;
    }
  }
  if (cohort::get_rank() == 0) std::printf("Training Complete!\n");
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  cohort::train::RunConfig config("image_classifier", "Trains a small network on images of random numbers.");
  config.add("model", settings.model, "network to train", {.choices = {"image_classifier", "train_model"}});
  config.add("epochs", settings.epochs, "passes over the images", {.min = 1});
  config.add("batch-size", settings.batch_size, "images per step and rank", {.min = 1});
  config.add("lr", settings.lr, "learning rate", {.above = 0});
  config.parse_or_exit(argc, argv);

  cohort::init_process_group();
  if (settings.model == "train_model") {
    train(cohort::models::TrainModel(), settings);
  } else {
    train(cohort::models::ImageClassifier(), settings);
  }
  cohort::destroy_process_group();
}
