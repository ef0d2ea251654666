// CIFAR-10, step 7: all of the steps before it with the Trainer: alone, with several devices, under a launcher, on several nodes.
//
//   build/bin/cohort-data make cifar10 --root data       # a small stand-in; `fetch` gets the real set
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/cifar_trainer
//
// trains a narrow ResNet-18, shows a line for each epoch, and prints the accuracy on the test set: on the stand-in 0.95 or more,
// in less than a minute on two cores. The folder runs/cifar gets checkpoints, from which the next run goes on, and logs; another
// --folder is another run. A resnet50d with timm's weights on images of 336x336:
//
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/cifar_trainer --config examples/cifar/resnet50d.toml
//       --pretrained resnet50d.safetensors
//
// (one line). --help lists the flags; a TOML file (--config FILE) takes them as well.
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
#include <cohort/train/trainer/seed_everything.h>
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
  config.add("root", settings.root, "folder of the data set");
  config.add("image-size", settings.image_size, "images are made so large", {.min = 8});
  config.add("augment", settings.augment, "crops and flips images at random");
  config.add("batch-size", settings.batch_size, "of all ranks together", {.min = 1});
  config.add("workers", settings.workers, "threads of each rank that read images", {.min = 0});
  config.section("Model");
  config.add("model", settings.model, "which one", {.choices = {"resnet18", "resnet50d"}});
  config.add("width", settings.width, "channels of resnet18's first stage; torchvision's has 64", {.min = 1});
  config.add("pretrained", settings.pretrained, "file of weights to begin with (.pth, .safetensors)");
  config.add("sync-bn", settings.sync_bn, "batch norm over the images of all ranks");
  config.section("Training");
  config.add("epochs", settings.epochs, "passes over the data", {.min = 1});
  config.add("lr", settings.lr, "learning rate at the beginning; it falls as a cosine", {.above = 0});
  config.add("precision", settings.precision, "numbers", {.choices = {"32", "bf16-mixed", "16-mixed", "bf16"}});
  config.add("strategy", settings.strategy, "how ranks and devices share the work",
             {.choices = {"auto", "single", "data_parallel", "ddp", "fsdp"}});
  config.add("fast-dev-run", settings.fast_dev_run, "only so many batches of everything: does it work at all?",
             {.min = 0});
  config.add("limit-batches", settings.limit_batches, "of each pass only so many; 0: all", {.min = 0});
  config.add("overfit-batches", settings.overfit_batches, "trains and validates on the same few; 0: all", {.min = 0});
  config.add("find-batch-size", settings.find_batch_size, "tries sizes of a rank's batch in the place of training");
  config.add("find-lr", settings.find_lr, "tries learning rates in the place of training");
  config.section("Files");
  config.add("folder", settings.folder, "for checkpoints and logs; empty: none");
  config.add("plot", settings.plot, "draws curves.svg and curves.png there");
}

models::ResNet make_model(const Settings& settings) {
  const auto make = [&] {
    if (settings.model == "resnet50d") return models::resnet50d({.num_classes = 10});
    return models::resnet18({.num_classes = 10, .width = settings.width, .is_small_input = settings.image_size < 64});
  };
  auto model = settings.pretrained.empty() ? make() : models::pretrained(settings.pretrained, make);
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
  // What a run that goes on must have in common with the one before.
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
    trainer.print("fastest batch of a rank: " + std::to_string(trainer.find_batch_size(task, loader).fastest));
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
