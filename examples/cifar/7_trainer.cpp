// CIFAR-10, step 7: all steps before it with the Trainer: in one process, on several devices, under a launcher, on several nodes.
//
//   build/bin/cohort-data make cifar10 --root data       # a small synthetic dataset; `fetch` gets CIFAR-10
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/cifar_trainer
//
// trains a narrow ResNet-18, shows a line for each epoch, and prints the accuracy on the test set: 0.95 or more on the synthetic
// dataset, in less than a minute on two cores. The folder runs/cifar gets logs, and checkpoints from which the next run resumes;
// use another --folder for another run. To train a resnet50d with timm's weights on images of 336x336:
//
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/cifar_trainer --config examples/cifar/resnet50d.toml
//       --pretrained resnet50d.safetensors
//
// (one line). --help lists the flags; they can also be set in a TOML file (--config FILE).
#include <cohort/data/loader/data_loader.h>
#include <cohort/extras/data/datasets/cifar.h>
#include <cohort/extras/data/transforms/compose.h>
#include <cohort/extras/data/transforms/crop.h>
#include <cohort/extras/data/transforms/flip.h>
#include <cohort/extras/data/transforms/resize.h>
#include <cohort/extras/data/transforms/to_tensor.h>
#include <cohort/extras/data/transforms/transformed_dataset.h>
#include <cohort/extras/models/resnet.h>
#include <cohort/models/pretrained.h>
#include <cohort/parallel/norm/convert_sync_batch_norm.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/train/config/run_config.h>
#include <cohort/train/logging/model_summary.h>
#include <cohort/train/metrics/accuracy.h>
#include <cohort/train/optim/cosine_schedulers.h>
#include <cohort/train/run/seed_everything.h>
#include <cohort/train/trainer/trainer.h>
#include <torch/nn/functional/loss.h>

#include <cstdio>
#include <string>
#include <vector>

namespace data = cohort::data;
namespace models = cohort::models;
namespace train = cohort::train;

namespace {

struct Settings {
  std::string root = "data", folder = "runs/cifar", model = "resnet18", pretrained, strategy = "auto", precision = "32";
  int64_t image_size = 32, width = 16, epochs = 8, batch_size = 64;
  int64_t fast_dev_run = 0, limit_batches = 0, overfit_batches = 0;
  int workers = 1;
  double lr = 0.003;
  bool augment = true, sync_bn = false, plot = false, find_batch_size = false, find_lr = false;
};

void add_options(train::RunConfig& config, Settings& settings) {
  config.section("Data");
  config.add("root", settings.root, "folder of the dataset");
  config.add("image-size", settings.image_size, "size of the images in pixels", {.min = 8});
  config.add("augment", settings.augment, "crop and flip images at random");
  config.add("batch-size", settings.batch_size, "images per step of all ranks together", {.min = 1});
  config.add("workers", settings.workers, "threads per rank that read images", {.min = 0});
  config.section("Model");
  config.add("model", settings.model, "model to train", {.choices = {"resnet18", "resnet50d"}});
  config.add("width", settings.width, "channels of resnet18's first stage; torchvision's has 64", {.min = 1});
  config.add("pretrained", settings.pretrained, "file of weights to begin with (.pth, .safetensors)");
  config.add("sync-bn", settings.sync_bn, "use sync batch norm, over the images of all ranks");
  config.section("Training");
  config.add("epochs", settings.epochs, "passes over the data", {.min = 1});
  config.add("lr", settings.lr, "initial learning rate; it falls along a cosine", {.above = 0});
  config.add("precision", settings.precision, "number format of the computation",
             {.choices = {"32", "bf16-mixed", "16-mixed", "bf16"}});
  config.add("strategy", settings.strategy, "parallel strategy",
             {.choices = {"auto", "single", "data_parallel", "ddp", "fsdp"}});
  config.add("fast-dev-run", settings.fast_dev_run,
             "run only this many batches of everything, to see whether the program works", {.min = 0});
  config.add("limit-batches", settings.limit_batches, "batches per pass over the data; 0 means all", {.min = 0});
  config.add("overfit-batches", settings.overfit_batches, "train and validate on the same few batches; 0 means all",
             {.min = 0});
  config.add("find-batch-size", settings.find_batch_size, "try batch sizes of a rank instead of training");
  config.add("find-lr", settings.find_lr, "try learning rates instead of training");
  config.section("Files");
  config.add("folder", settings.folder, "folder for checkpoints and logs; if empty, there are none");
  config.add("plot", settings.plot, "draw curves.svg and curves.png there");
}

models::ResNet make_model(const Settings& settings) {
  const auto make = [&] {
    if (settings.model == "resnet50d") return models::resnet50d({.num_classes = 10});
    return models::resnet18({.num_classes = 10, .width = settings.width, .is_small_input = settings.image_size < 64});
  };
  auto model = settings.pretrained.empty() ? make() : models::load_pretrained_model(make, settings.pretrained);
  return settings.sync_bn ? cohort::convert_sync_batchnorm(model) : model;
}

auto images_of(const Settings& settings, bool is_training) {
  std::vector<data::Transform> transforms;
  if (is_training && settings.augment) {
    transforms.emplace_back(data::RandomCrop(32, {.padding = {4}}));
    transforms.emplace_back(data::RandomHorizontalFlip());
  }
  if (settings.image_size != 32) transforms.emplace_back(data::Resize(settings.image_size));
  transforms.emplace_back(data::ToTensor());
  return data::TransformedDataset(data::CIFAR10(settings.root, {.train = is_training}), data::Compose(transforms));
}

train::TrainerOptions trainer_options(const Settings& settings, const train::Hyperparameters& values) {
  train::TrainerOptions options{.strategy = {.kind = settings.strategy}, .precision = settings.precision, .seed = 1};
  options.max_epochs = settings.epochs;
  options.fast_dev_run = settings.fast_dev_run;
  if (const int64_t limit = settings.limit_batches; limit > 0) {
    options.limit_train_batches = options.limit_val_batches = options.limit_test_batches = limit;
  }
  options.overfit_batches = settings.overfit_batches;
  if (!settings.folder.empty()) options.checkpoint.folder = settings.folder + "/checkpoints";
  // Settings that a resumed run must have in common with the run before.
  options.checkpoint.settings = {
      {"model", settings.model},           {"width", settings.width}, {"image-size", settings.image_size},
      {"batch-size", settings.batch_size}, {"lr", settings.lr},       {"sync-bn", settings.sync_bn}};
  options.log_folder = settings.folder;
  options.plot = settings.plot;
  options.hyperparameters = values;
  return options;
}

struct Classify {
  explicit Classify(const Settings& settings)
      : model(make_model(settings)),
        optimizer(model->parameters(), torch::optim::AdamOptions(settings.lr)),
        cosine(optimizer, settings.epochs) {}

  at::Tensor loss(const at::Tensor& scores, const at::Tensor& labels) {
    return torch::nn::functional::cross_entropy(scores, labels);
  }

  models::ResNet model;
  cohort::optim::Adam optimizer;
  cohort::optim::CosineAnnealingLR cosine;
  std::vector<train::Schedule> schedulers = {train::every_epoch(cosine)};
  std::vector<train::TaskMetric> metrics = {{"accuracy", train::Accuracy()}};
};

void run(const Settings& settings, const train::TrainerOptions& options) {
  train::Trainer trainer(options);
  train::seed_everything(1);  // the same initial weights on every rank
  Classify task(settings);
  trainer.print(train::model_summary(
      *task.model, {.max_depth = 1, .world_size = trainer.world_size(), .strategy = settings.strategy}));
  const data::DataLoader loader(
      images_of(settings, true),
      {.global_batch_size = settings.batch_size, .shuffle = true, .num_workers = settings.workers});
  const data::DataLoader test(images_of(settings, false), {.batch_size = 100});
  if (settings.find_batch_size) {
    const auto fastest = trainer.find_batch_size(task, loader).fastest;
    trainer.print("fastest batch of a rank: " + (fastest ? std::to_string(*fastest) : "none"));
  }
  if (settings.find_lr) {
    trainer.print("learning rate: " + std::to_string(trainer.find_learning_rate(task, loader).suggestion.value_or(0)));
  }
  if (settings.find_batch_size || settings.find_lr) return;
  trainer.fit(task, loader, test);
  trainer.test(task, test);
  if (trainer.is_first_rank()) std::printf("test accuracy %.3f\n", *trainer.metric("test/accuracy"));
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  train::RunConfig config("cifar_trainer", "Trains an image classifier on CIFAR-10.");
  add_options(config, settings);
  config.parse_or_exit(argc, argv);
  try {
    run(settings, trainer_options(settings, config.values()));
  } catch (const std::exception& error) {
    return config.report(error);
  }
}
