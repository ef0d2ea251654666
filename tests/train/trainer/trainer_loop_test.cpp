// What fit does at the ends of epochs, windows and runs, and which numbers count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/checkpoint/checkpointer/checkpointer.h"
#include "cohort/data/datasets/subset.h"
#include "cohort/data/samplers/distributed_sampler.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/train/trainer/number_stream.h"
#include "tests/train/trainer/small_task.h"

namespace cohort::train {
namespace {

using cohort::test::TemporaryFolder;
using test::error_of;
using test::Loader;
using test::NumberStream;
using test::quiet;
using test::small_data;
using test::SmallTask;
using test::Watch;
using test::weights_of;
using testing::ElementsAre;

// A run that ends after step `cut` and goes on is the run. `make` gives a loader that nobody has used.
template <class Make>
void expect_whole(const Make& make, int64_t cut, TrainerOptions options) {
  const TemporaryFolder folder;
  options = quiet(options);
  options.max_epochs = 3;
  options.seed = 9;
  SmallTask whole;
  auto all = std::make_shared<Watch>();
  options.callbacks = {all};
  Trainer(options).fit(whole, make());
  options.checkpoint.folder = folder.file("run");
  std::vector<double> losses;
  SmallTask first;
  SmallTask second;
  for (SmallTask* task : {&first, &second}) {
    auto watch = std::make_shared<Watch>(task == &first ? cut : 0);
    options.callbacks = {watch};
    Trainer(options).fit(*task, make());
    losses.insert(losses.end(), watch->losses.begin(), watch->losses.end());
  }
  EXPECT_EQ(losses, all->losses) << "cut after step " << cut;
  EXPECT_TRUE(test::are_equal(weights_of(*second.model), weights_of(*whole.model))) << "cut after step " << cut;
}

// 20 samples in batches of 4: five batches.
TEST(TrainerLoop, GoesOnAfterTheLastBatchOfAnEpochWithAnOwnSampler) {
  const auto distributed = [] {
    data::DistributedSamplerOptions options{.num_replicas = 1, .rank = 0};
    return Loader(small_data(20),
                  {.batch_size = 4, .sampler = std::make_shared<data::DistributedSampler>(20, options)});
  };
  const auto random = [] {
    return Loader(small_data(20), {.batch_size = 4, .shuffle = true, .generator = data::make_generator(4)});
  };
  for (const int64_t cut : {2, 5, 7, 10}) {
    expect_whole(distributed, cut, {});
    expect_whole(random, cut, {});
  }
  for (const int64_t cut : {2, 3, 5}) {
    expect_whole(distributed, cut, {.limit_train_batches = 3});
    expect_whole(random, cut, {.limit_train_batches = 3});
  }
}

TEST(TrainerLoop, GoesOnAfterTheLastBatchOfAnEpochOfAnIterable) {
  const auto make = [] { return data::DataLoader(NumberStream(20), {.batch_size = 4}); };
  for (const int64_t cut : {2, 5, 7, 10}) expect_whole(make, cut, {});
  for (const int64_t cut : {2, 3, 5}) expect_whole(make, cut, {.limit_train_batches = 3});
}

TEST(TrainerLoop, AnIterableMayEndBeforeTheLimit) {
  const data::DataLoader loader(NumberStream(20), {.batch_size = 4});
  SmallTask task;
  auto result = Trainer(quiet({.max_epochs = 2, .limit_train_batches = 8})).fit(task, loader);
  EXPECT_EQ(result.reason, "max_epochs");
  EXPECT_EQ(result.steps, 10);
  result = Trainer(quiet({.fast_dev_run = 8})).fit(task, loader);
  EXPECT_EQ(result.epochs, 1);
  EXPECT_EQ(result.steps, 5);
  // The limit is the last batch, so that a window ends there.
  result =
      Trainer(quiet({.max_epochs = 2, .gradient_accumulation_steps = 2, .limit_train_batches = 3})).fit(task, loader);
  EXPECT_EQ(result.steps, 4);
  EXPECT_EQ(error_of<c10::ValueError>([&] {
              Trainer(quiet({.max_steps = 3})).fit(task, data::DataLoader(NumberStream(0), {.batch_size = 4}));
            }),
            "[cohort] Trainer: an epoch has no batch to train on\n  hint: check the dataset's size, drop_last and "
            "limit_train_batches");
}

// Trains the last layer alone.
struct PartTask {
  test::Net model = SmallTask::make(0.0);
  optim::SGD optimizer{model->second->parameters(), torch::optim::SGDOptions(0.5)};
  at::Tensor loss(const at::Tensor& scores, const at::Tensor& labels) {
    return torch::nn::functional::cross_entropy(scores, labels);
  }
};

TEST(TrainerLoop, ClipsWhatTheOptimizerHas) {
  const Loader loader(small_data(20), {.batch_size = 4});
  PartTask task;
  Trainer(quiet({.max_epochs = 1, .gradient_clip_norm = 0.1})).fit(task, loader);
  PartTask by_hand;
  for (auto& [input, target] : loader) {
    by_hand.loss(by_hand.model(input), target).backward();
    cohort::nn::utils::clip_grad_norm_(by_hand.model->second->parameters(), 0.1);
    by_hand.optimizer.step();
    by_hand.optimizer.zero_grad();
  }
  EXPECT_TRUE(test::are_equal(weights_of(*task.model), weights_of(*by_hand.model)));
}

// Gets worse from evaluation to evaluation.
struct Falling {
  void update(const at::Tensor&, const at::Tensor&) {}
  double compute() { return ++count; }
  void reset() {}
  double count = 0;
};

// The checkpoint of an epoch's end takes the place of that of its last step, whose metric counts.
TEST(TrainerLoop, AnOptimizerWithoutParametersMessage) {
  SmallTask task;
  torch::optim::SGD empty(std::vector<torch::optim::OptimizerParamGroup>{}, torch::optim::SGDOptions(0.1));
  Task nothing_to_train{
      .model = task.model, .loss = [](const at::Tensor& a, const at::Tensor&) { return a.sum(); }, .optimizer = &empty};
  const Loader loader(small_data(8), {.batch_size = 4});
  EXPECT_EQ(error_of<c10::ValueError>([&] { Trainer(quiet({.max_epochs = 1})).fit(nothing_to_train, loader); }),
            "[cohort] Trainer: the task's optimizer has no parameters\n  hint: construct it with net->parameters()");
}

TEST(TrainerLoop, KeepsTheBestThatIsSavedTwice) {
  const TemporaryFolder folder;
  SmallTask task;
  task.metrics = {{"falling", Falling()}};
  Trainer trainer(quiet({.max_epochs = 3,
                         .val_check_interval = 5,
                         .checkpoint = {.folder = folder.file("run"),
                                        .every_steps = 5,
                                        .keep_last = 1,
                                        .keep_best = 1,
                                        .monitor = "validation/falling"}}));
  trainer.fit(task, Loader(small_data(20), {.batch_size = 4}), Loader(small_data(8), {.batch_size = 4}));
  checkpoint::Checkpointer checkpoints(folder.file("run"), {.keep_last = 1, .keep_best = 1});
  checkpoint::ShardedStateDict state;
  EXPECT_EQ(checkpoints.load(state, 5).info.metric, 1.0);
  EXPECT_EQ(checkpoints.latest()->step, 15);
}

// A loss of shape [1]; its batches have 4, 4 and 2 samples.
struct FlatTask : SmallTask {
  at::Tensor loss(const at::Tensor& scores, const at::Tensor& labels) {
    return SmallTask::loss(scores, labels).view(1);
  }
};

TEST(TrainerLoop, WeighsTheLossesOfAnEpochBySamples) {
  FlatTask task;
  auto watch = std::make_shared<Watch>();
  Trainer trainer(quiet({.max_epochs = 1, .callbacks = {watch}}));
  trainer.fit(task, Loader(small_data(10), {.batch_size = 4}));
  const auto& losses = watch->losses;
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_NEAR(*trainer.metric("train/epoch_loss"), (4 * losses[0] + 4 * losses[1] + 2 * losses[2]) / 10, 1e-9);
}

// Takes a number.
struct Counted {
  void step(double) { ++count; }
  c10::IValue state_dict() const { return {}; }
  void load_state_dict(const c10::IValue&) {}
  int64_t count = 0;
};

TEST(TrainerLoop, NumbersFromBeforeARunDoNotCount) {
  const TemporaryFolder folder;
  const Loader loader(small_data(8), {.batch_size = 4});
  Counted plateau;
  SmallTask task;
  task.schedulers = {every_epoch(plateau)};
  Trainer trainer(quiet({.max_epochs = 1, .checkpoint = {.folder = folder.file("run")}}));
  trainer.validate(task, loader);
  trainer.fit(task, loader);
  EXPECT_EQ(plateau.count, 0);
  EXPECT_FALSE(checkpoint::Checkpointer(folder.file("run")).latest()->info.metric.has_value());
}

TEST(TrainerLoop, RefusesMonitorsThatAreNotThere) {
  const auto text_of = [](const TrainerOptions& options, const std::string& monitor) {
    const Loader loader(small_data(8), {.batch_size = 4});
    Counted plateau;
    SmallTask task;
    task.schedulers = {every_epoch(plateau, {.monitor = monitor})};
    return error_of<c10::ValueError>([&] { Trainer(quiet(options)).fit(task, loader, loader); });
  };
  const std::string rest =
      "\n  hint: set monitor to one of \"train/loss\", \"train/epoch_loss\", \"lr\", \"epoch\", \"validation/loss\", "
      "\"validation/accuracy\", or give the task a metric of this name";
  EXPECT_EQ(text_of({.max_epochs = 2}, "validation/accuracy"), "no error");
  EXPECT_EQ(text_of({.max_epochs = 2}, "train/loss"), "no error");  // which is not logged here
  EXPECT_EQ(text_of({.max_epochs = 2}, "validation/acuracy"),
            "[cohort] Trainer: there is no number \"validation/acuracy\", by which the best checkpoint or the learning "
            "rate is chosen (did you mean \"validation/accuracy\"?)" +
                rest);
  const TemporaryFolder folder;
  TrainerOptions options{.max_epochs = 2};
  options.checkpoint = {.folder = folder.file("run"), .monitor = "perplexity"};
  EXPECT_EQ(text_of(options, "lr"), "no error");  // nobody asks for the best
  options.checkpoint.folder = folder.file("other");
  options.checkpoint.keep_best = 1;
  EXPECT_EQ(text_of(options, "lr"),
            "[cohort] Trainer: there is no number \"perplexity\", by which the best checkpoint or the learning rate is "
            "chosen" +
                rest);
}

TEST(TrainerLoop, RefusesAnIntervalThatAnEpochHasNot) {
  const Loader loader(small_data(20), {.batch_size = 4});
  SmallTask task;
  EXPECT_EQ(error_of<c10::ValueError>(
                [&] { Trainer(quiet({.max_epochs = 1, .val_check_interval = 6})).fit(task, loader, loader); }),
            "[cohort] Trainer: val_check_interval = 6 batches, but an epoch has 5, so there would never be a "
            "validation\n  hint: use a smaller interval, or a fraction of an epoch; limit_val_batches = 0 turns "
            "validation off");
  EXPECT_EQ(error_of([&] { Trainer(quiet({.max_epochs = 1, .val_check_interval = 6})).fit(task, loader); }),
            "no error");
  struct Count : Callback {
    void on_validation_end(Trainer&, const Metrics&) override { ++count; }
    int64_t count = 0;
  };
  auto count = std::make_shared<Count>();
  const TrainerOptions options{
      .fast_dev_run = 2, .val_check_interval = 6, .check_val_every_n_epoch = 3, .callbacks = {count}};
  Trainer(quiet(options)).fit(task, loader, loader);
  EXPECT_EQ(count->count, 1);
}

TEST(TrainerLoop, CallbacksSeeGradientsWithoutAScale) {
  struct Gradients : Callback {
    void on_before_optimizer_step(Trainer& trainer) override {
      if (!first.defined()) first = trainer.strategy().parameters().back().grad().clone();
    }
    at::Tensor first;
  };
  std::vector<at::Tensor> gradients;
  for (const char* precision : {"32", "16-mixed"}) {
    SmallTask task(/*drop=*/0.0);
    auto seen = std::make_shared<Gradients>();
    TrainerOptions options{.max_steps = 1, .callbacks = {seen}};
    options.precision = precision;
    Trainer(quiet(options)).fit(task, Loader(small_data(8), {.batch_size = 8}));
    gradients.push_back(seen->first);
  }
  EXPECT_TRUE(at::allclose(gradients[0], gradients[1], /*rtol=*/0.0, /*atol=*/0.01)) << gradients[1];
}

TEST(TrainerLoop, PartsInEvaluationModeStayInIt) {
  const Loader loader(small_data(8), {.batch_size = 4});
  SmallTask task;
  task.model->norm->eval();
  const auto mean = task.model->norm->running_mean.clone();
  Trainer trainer(quiet({.max_epochs = 2}));
  trainer.validate(task, loader);
  EXPECT_TRUE(!task.model->norm->is_training() && task.model->is_training() && task.model->dropout->is_training());
  trainer.fit(task, loader, loader);
  EXPECT_TRUE(!task.model->norm->is_training() && task.model->is_training() && task.model->dropout->is_training());
  EXPECT_TRUE(at::equal(task.model->norm->running_mean, mean));
  task.model->eval();
  trainer.fit(task, loader, loader);
  EXPECT_TRUE(task.model->norm->is_training() && task.model->is_training());
}

// Notes which samples are read.
struct ReadData {
  std::tuple<at::Tensor, at::Tensor> get(int64_t index) const {
    read->push_back(index);
    return {at::full({6}, static_cast<double>(index)), at::zeros({}, at::kLong)};
  }
  int64_t size() const { return 12; }
  std::shared_ptr<std::vector<int64_t>> read = std::make_shared<std::vector<int64_t>>();
};

TEST(TrainerLoop, OverfitsTheSameSamplesInOrder) {
  SmallTask task;
  const ReadData dataset;
  const auto sampler = std::make_shared<data::RandomSampler>(12);
  Trainer(quiet({.max_epochs = 2, .overfit_batches = 2}))
      .fit(task, data::DataLoader(dataset, {.batch_size = 2, .sampler = sampler}));
  EXPECT_THAT(*dataset.read, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
}

// As datasets of transformed images, which are other ones in each epoch.
struct EpochData {
  std::tuple<at::Tensor, at::Tensor> get(int64_t index) const {
    return {at::full({6}, static_cast<double>(index)), at::zeros({}, at::kLong)};
  }
  int64_t size() const { return 8; }
  void set_epoch(int64_t epoch) const { epochs->push_back(epoch); }
  std::shared_ptr<std::vector<int64_t>> epochs = std::make_shared<std::vector<int64_t>>();
};

TEST(TrainerLoop, TellsTheDatasetOfEachEpoch) {
  SmallTask task;
  const EpochData dataset;
  Trainer(quiet({.max_epochs = 3})).fit(task, data::DataLoader(dataset, {.batch_size = 4}));
  EXPECT_THAT(*dataset.epochs, ElementsAre(0, 1, 2));
  const EpochData inner, shuffled;
  Trainer(quiet({.max_epochs = 3})).fit(task, data::DataLoader(data::Subset(inner, {0, 5}), {.batch_size = 2}));
  EXPECT_THAT(*inner.epochs, ElementsAre(0, 1, 2));
  Trainer(quiet({.max_epochs = 2})).fit(task, data::DataLoader(shuffled, {.batch_size = 4, .shuffle = true}));
  EXPECT_THAT(*shuffled.epochs, ElementsAre(0, 1)) << "once an epoch";
}

}  // namespace
}  // namespace cohort::train
