// The Trainer on one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/schedulers/step_lr.h>

#include <cmath>
#include <limits>

#include "cohort/checkpoint/checkpointer/checkpointer.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/train/run/seed_everything.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/rounding.h"
#include "tests/train/trainer/small_task.h"

namespace cohort::train {
namespace {

using test::error_of;
using test::Loader;
using test::quiet;
using test::small_data;
using test::SmallTask;
using test::Watch;
using test::weights_of;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Trainer, EqualsALoopByHand) {
  SmallTask task;
  auto watch = std::make_shared<Watch>();
  at::manual_seed(5);
  Trainer trainer(
      quiet({.max_epochs = 3, .gradient_accumulation_steps = 2, .gradient_clip_norm = 0.5, .callbacks = {watch}}));
  const auto result = trainer.fit(task, Loader(small_data(37), {.batch_size = 8}));
  EXPECT_EQ(result.reason, "max_epochs");
  EXPECT_EQ(result.epochs, 3);
  EXPECT_EQ(result.steps, 9);  // five batches: two steps of two, one of one

  SmallTask by_hand;
  at::manual_seed(5);
  std::vector<double> losses;
  const Loader loader(small_data(37), {.batch_size = 8});
  for (int epoch = 0; epoch < 3; ++epoch) {
    int batch = 0;
    for (auto& [input, target] : loader) {
      const at::Tensor loss = by_hand.loss(by_hand.model(input), target);
      losses.push_back(loss.item<double>());
      (loss / 2.0).backward();
      ++batch;
      if (batch % 2 != 0 && batch != loader.size()) continue;
      cohort::nn::utils::clip_grad_norm_(by_hand.model->parameters(), 0.5);
      by_hand.optimizer.step();
      by_hand.optimizer.zero_grad();
    }
  }
  EXPECT_EQ(watch->losses, losses);
  EXPECT_TRUE(test::are_equal(weights_of(*task.model), weights_of(*by_hand.model)));
}

TEST(Trainer, WeighsTheLastBatchOfAnEvaluationByItsSize) {
  SmallTask task;
  Trainer trainer(quiet({}));
  const auto data = small_data(21);
  const Metrics values = trainer.validate(task, Loader(data, {.batch_size = 8}));
  task.model->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor scores = task.model(data.tensors()[0]);
  ASSERT_EQ(values.size(), 2U);
  EXPECT_EQ(values[0].first, "validation/loss");
  const double loss = task.loss(scores, data.tensors()[1]).item<double>();
  EXPECT_NEAR(values[0].second, loss, cohort::test::rounding(at::kFloat, test::kSmallSums, loss));
  EXPECT_EQ(values[1].first, "validation/accuracy");
  EXPECT_EQ(values[1].second, scores.argmax(1).eq(data.tensors()[1]).sum().item<double>() / 21);
  EXPECT_EQ(trainer.test(task, Loader(data, {.batch_size = 8}))[0],
            std::pair(std::string("test/loss"), values[0].second));
  EXPECT_EQ(at::cat(trainer.predict(task, Loader(data, {.batch_size = 8}))).sizes(), scores.sizes());
}

TEST(Trainer, LeavesTheModelInTrainingModeAfterEvaluation) {
  SmallTask task;
  Trainer trainer(quiet({.max_epochs = 1}));
  trainer.fit(task, Loader(small_data(16), {.batch_size = 8}), Loader(small_data(8), {.batch_size = 8}));
  EXPECT_TRUE(task.model->is_training() && task.model->norm->is_training());
}

// A run in two halves, cut at any step, is the run.
void expect_equal_after_resume(int64_t cut, TrainerOptions options) {
  const cohort::test::TemporaryFolder folder;
  const Loader loader(small_data(40), {.batch_size = 4, .shuffle = true, .num_workers = 1});
  options.progress = false;
  options.max_epochs = 2;
  options.seed = 9;
  SmallTask whole;
  auto all = std::make_shared<Watch>();
  options.callbacks = {all};
  {
    torch::optim::StepLR decay(whole.optimizer, 3);
    whole.schedulers = {every_step(decay)};
    Trainer(options).fit(whole, loader, Loader(small_data(12), {.batch_size = 4}));
  }
  options.checkpoint.folder = folder.file("run");
  std::vector<double> losses;
  const SmallTask* last = nullptr;
  SmallTask first;
  SmallTask second;
  for (SmallTask* task : {&first, &second}) {
    auto watch = std::make_shared<Watch>(task == &first ? cut : 0);
    options.callbacks = {watch};
    torch::optim::StepLR decay(task->optimizer, 3);
    task->schedulers = {every_step(decay)};
    Trainer(options).fit(*task, loader, Loader(small_data(12), {.batch_size = 4}));
    losses.insert(losses.end(), watch->losses.begin(), watch->losses.end());
    last = task;
  }
  EXPECT_EQ(losses, all->losses) << "cut after step " << cut;
  EXPECT_TRUE(test::are_equal(weights_of(*last->model), weights_of(*whole.model))) << "cut after step " << cut;
}

TEST(Trainer, GoesOnInTheMiddleOfAnEpochWithTheSameBits) {
  for (const int64_t cut : {3, 9, 10, 11, 17}) expect_equal_after_resume(cut, {});
  expect_equal_after_resume(3, {.gradient_accumulation_steps = 3});
  expect_equal_after_resume(3, {.limit_train_batches = 5});
  expect_equal_after_resume(5, {.limit_train_batches = 5});
}

TEST(Trainer, SavesEverySoManySteps) {
  const cohort::test::TemporaryFolder folder;
  SmallTask task;
  Trainer trainer(quiet(
      {.max_epochs = 4,
       .checkpoint = {.folder = folder.file("run"), .every_steps = 3, .every_epochs = std::nullopt, .keep_last = 2}}));
  trainer.fit(task, Loader(small_data(20), {.batch_size = 4}));
  checkpoint::Checkpointer checkpoints(folder.file("run"), {.keep_last = 2});
  EXPECT_EQ(checkpoints.latest()->step, 20);
  EXPECT_EQ(checkpoints.latest()->info.metadata.at("batch_size"), "4");
}

TEST(Trainer, KeepsTheBestAndTheLast) {
  struct Losses : Callback {
    void on_validation_end(Trainer& trainer, const Metrics& values) override {
      if (values.front().second < best) {
        best = values.front().second;
        best_step = trainer.step();
      }
    }
    double best = std::numeric_limits<double>::infinity();
    int64_t best_step = 0;
  };
  const cohort::test::TemporaryFolder folder;
  auto losses = std::make_shared<Losses>();
  SmallTask task(/*drop=*/0.0, /*rate=*/0.5);
  Trainer trainer(quiet({.max_epochs = 6,
                         .checkpoint = {.folder = folder.file("run"), .keep_last = 1, .keep_best = 1},
                         .callbacks = {losses}}));
  trainer.fit(task, Loader(small_data(20), {.batch_size = 4}), Loader(small_data(12, /*seed=*/8), {.batch_size = 4}));
  checkpoint::Checkpointer checkpoints(folder.file("run"), {.keep_last = 1, .keep_best = 1});
  EXPECT_EQ(checkpoints.latest()->step, 30);
  auto state = checkpoint::ShardedStateDict();
  EXPECT_NO_THROW(checkpoints.load(state, losses->best_step));
  EXPECT_EQ(checkpoints.load(state, losses->best_step).info.metric, losses->best);
}

TEST(Trainer, ValidatesAtPartsOfAnEpoch) {
  struct Count : Callback {
    void on_validation_end(Trainer& trainer, const Metrics&) override { at.push_back(trainer.batch()); }
    std::vector<int64_t> at;
  };
  const auto batches_of = [](const TrainerOptions& given) {
    auto options = quiet(given);
    auto count = std::make_shared<Count>();
    options.callbacks = {count};
    options.max_epochs = 2;
    SmallTask task;
    Trainer(options).fit(task, Loader(small_data(40), {.batch_size = 4}), Loader(small_data(8), {.batch_size = 4}));
    return count->at;
  };
  EXPECT_THAT(batches_of({}), ElementsAre(10, 10));
  EXPECT_THAT(batches_of({.check_val_every_n_epoch = 2}), ElementsAre(10));
  EXPECT_THAT(batches_of({.val_check_interval = 0.5}), ElementsAre(5, 10, 5, 10));
  EXPECT_THAT(batches_of({.val_check_interval = 4}), ElementsAre(4, 8, 4, 8));
  EXPECT_THAT(batches_of({.fast_dev_run = 2}), ElementsAre(2));
  EXPECT_THAT(batches_of({.limit_val_batches = 0}), ElementsAre());
  EXPECT_THAT(batches_of({.limit_val_batches = 0.0, .val_check_interval = 4}), ElementsAre());
}

TEST(Trainer, EndsWhereItIsTold) {
  const auto end_of = [](const TrainerOptions& options, int64_t stop_at = 0) {
    SmallTask task;
    auto given = quiet(options);
    given.callbacks = {std::make_shared<Watch>(stop_at)};
    const auto result = Trainer(given).fit(task, Loader(small_data(40), {.batch_size = 4}));
    return result.reason + " " + std::to_string(result.epochs) + " " + std::to_string(result.steps);
  };
  EXPECT_EQ(end_of({.max_epochs = 2}), "max_epochs 2 20");
  EXPECT_EQ(end_of({.max_steps = 13}), "max_steps 1 13");
  EXPECT_EQ(end_of({.max_time = std::chrono::milliseconds(1)}).substr(0, 8), "max_time");
  EXPECT_EQ(end_of({.max_epochs = 2, .max_time = std::chrono::milliseconds::max()}), "max_epochs 2 20");
  EXPECT_EQ(end_of({.max_epochs = 2}, 4), "watch 0 4");
  EXPECT_EQ(end_of({.max_epochs = 2, .limit_train_batches = 0.25}), "max_epochs 2 4");
  EXPECT_EQ(end_of({.max_epochs = 9, .fast_dev_run = 3}), "max_steps 1 3");
}

TEST(Trainer, OverfitsOnTheSameBatches) {
  SmallTask task;
  auto watch = std::make_shared<Watch>();
  Trainer trainer(quiet({.max_epochs = 60, .overfit_batches = 1, .callbacks = {watch}}));
  trainer.fit(task, Loader(small_data(40), {.batch_size = 8, .shuffle = true}));
  EXPECT_EQ(watch->losses.size(), 60U);
  EXPECT_LT(watch->losses.back(), 0.25 * watch->losses.front());
}

TEST(Trainer, NamesTheFirstTensorThatIsNotFinite) {
  const auto text_of = [](const std::function<void(SmallTask&, at::Tensor&)>& spoil) {
    SmallTask task;
    auto data = small_data(8);
    at::Tensor inputs = data.tensors()[0];
    const at::NoGradGuard no_grad;
    spoil(task, inputs);
    const at::AutoGradMode grad(true);
    Trainer trainer(quiet({.max_epochs = 1}));
    return error_of([&] { trainer.fit(task, Loader(data, {.batch_size = 4})); });
  };
  const std::string hint =
      "\n  hint: lower the learning rate, set gradient_clip_norm, or check the data; finite_check = FiniteCheck::kNone "
      "turns this check off";
  EXPECT_EQ(text_of([](SmallTask&, at::Tensor& inputs) { inputs[5][2].fill_(NAN); }),
            "[cohort] Trainer: the loss is nan in step 1 (epoch 0, batch 1) on rank 0\n  the first tensor that is not "
            "finite is tensor 0 of the batch, which holds nan or infinity in 1 of 24 elements" +
                hint);
  EXPECT_EQ(text_of([](SmallTask& task, at::Tensor&) { task.model->second->bias.fill_(INFINITY); }),
            "[cohort] Trainer: the loss is nan in step 0 (epoch 0, batch 0) on rank 0\n  the first tensor that is not "
            "finite is parameter \"second.bias\", which holds nan or infinity in 3 of 3 elements" +
                hint);
}

TEST(Trainer, NamesTheFirstGradientThatIsNotFinite) {
  SmallTask task;
  task.model->second->weight.register_hook([](const at::Tensor& gradient) { return gradient / 0.0; });
  Trainer trainer(quiet({.max_epochs = 1, .finite_check = FiniteCheck::kGradients}));
  EXPECT_EQ(error_of([&] { trainer.fit(task, Loader(small_data(8), {.batch_size = 4})); }),
            "[cohort] Trainer: gradients are not finite in step 0 (epoch 0, batch 0) on rank 0\n  the first one is the "
            "gradient of \"second.weight\", which holds nan or infinity in 48 of 48 elements\n  hint: lower the "
            "learning rate, or check the loss function; finite_check = FiniteCheck::kLoss does not check gradients");
}

TEST(Trainer, SaysWhatIsWrongWithOptions) {
  const auto text_of = [](const TrainerOptions& options) {
    return error_of<c10::ValueError>([&] { Trainer{options}; });
  };
  EXPECT_EQ(text_of({.strategy = {.kind = "dpp"}}),
            "[cohort] Trainer: there is no strategy \"dpp\" (did you mean \"ddp\"?)\n  hint: use \"auto\", \"single\", "
            "\"ddp\", \"fsdp\" or \"data_parallel\"");
  EXPECT_EQ(
      text_of({.strategy = {.kind = "ddp", .devices = 2}}),
      "[cohort] Trainer: strategy \"ddp\" on 2 devices needs 2 processes, but this one was started alone\n  hint: "
      "start it with cohort run --standalone --nproc-per-node 2 PROGRAM, or with cohort::spawn");
  EXPECT_EQ(
      text_of({.strategy = {.kind = "fsdp", .devices = 2, .num_nodes = 3}}),
      "[cohort] Trainer: strategy \"fsdp\" on 6 devices needs 6 processes, but this one was started alone\n  hint: "
      "start it on each host with cohort run --nnodes 3 --nproc-per-node 2 --rdzv-endpoint HOST:PORT PROGRAM");
  EXPECT_EQ(text_of({.precision = "bf16-mixd"}),
            "[cohort] Trainer: there is no precision \"bf16-mixd\" (did you mean \"bf16-mixed\"?)\n  hint: use \"32\", "
            "\"bf16-mixed\", \"16-mixed\" or \"bf16\"");
  EXPECT_EQ(text_of({.max_epochs = 0}),
            "[cohort] Trainer: max_epochs is at least 1, but got 0\n  hint: leave it out, or set it to std::nullopt");
  EXPECT_EQ(text_of({.gradient_accumulation_steps = 0}),
            "[cohort] Trainer: gradient_accumulation_steps is at least 1, but got 0");
  EXPECT_EQ(text_of({.gradient_clip_norm = 1, .gradient_clip_value = 1}),
            "[cohort] Trainer: gradient_clip_norm and gradient_clip_value exclude each other\n  hint: set only "
            "gradient_clip_norm, which keeps the gradient's direction");
  EXPECT_EQ(
      text_of({.limit_val_batches = 1.5}),
      "[cohort] Trainer: limit_val_batches is a fraction from 0.0 to 1.0 or a whole number of batches, but got 1.5");
  EXPECT_EQ(
      text_of({.checkpoint = {.memory_every_steps = -1}}),
      "[cohort] Trainer: checkpoint.memory_every_steps is at least 1, but got -1\n  hint: leave it out, or set it to "
      "std::nullopt");
  EXPECT_EQ(text_of({.checkpoint = {.every = std::chrono::milliseconds(0)}}),
            "[cohort] Trainer: checkpoint.every is at least 1, but got 0\n  hint: leave it out, or set it to "
            "std::nullopt");
  EXPECT_EQ(text_of({.fast_dev_run = -1}),
            "[cohort] Trainer: fast_dev_run is not negative, but got -1\n  hint: use 0 for none");
  EXPECT_EQ(text_of({.strategy = {.devices = 0}}),
            "[cohort] Trainer: strategy.devices is at least 1, but got 0\n  hint: leave it out for all there are");
  EXPECT_EQ(text_of({.fsdp_replicas = 2}),
            "[cohort] Trainer: fsdp_replicas = 2 is for strategy \"fsdp\", but this is \"single\"");
}

TEST(Trainer, SaysWhatIsWrongWithATask) {
  const Loader loader(small_data(8), {.batch_size = 4});
  SmallTask task;
  const auto text_of = [&](const TrainerOptions& options, auto& task) {
    return error_of<c10::ValueError>([&] { Trainer(quiet(options)).fit(task, loader); });
  };
  EXPECT_EQ(text_of({}, task), "[cohort] Trainer: fit has no limit\n  hint: set max_epochs, max_steps or max_time");
  Task no_optimizer{.model = task.model, .loss = [](const at::Tensor& a, const at::Tensor&) { return a.sum(); }};
  EXPECT_EQ(text_of({.max_epochs = 1}, no_optimizer),
            "[cohort] Trainer: fit needs an optimizer, and the task has none\n  hint: give it one: Task{.model = net, "
            ".loss = cross_entropy, .optimizer = &optimizer}");
  Task no_loss{.model = task.model};
  EXPECT_EQ(text_of({.max_epochs = 1}, no_loss),
            "[cohort] Trainer: the task's loss is an empty function\n  hint: give it one: Task{.model = net, .loss = "
            "cross_entropy, ...}");
  Task no_mean{.model = task.model,
               .loss = [](const at::Tensor& a, const at::Tensor&) { return a; },
               .optimizer = &task.optimizer};
  EXPECT_EQ(text_of({.max_epochs = 1, .finite_check = FiniteCheck::kNone}, no_mean),
            "[cohort] Trainer: the task's loss must be a tensor of one element, but has 12\n  hint: return the mean "
            "over the batch, as most loss functions do");
  EXPECT_EQ(error_of<c10::ValueError>([&] { Trainer(quiet({})).validate(no_mean, loader); }),
            text_of({.max_epochs = 1, .finite_check = FiniteCheck::kNone}, no_mean));
}

TEST(Trainer, TakesALossOfOneDimension) {
  const auto metrics_with = [](bool has_dimension) {
    SmallTask task(/*drop=*/0.0);
    Task other{.model = task.model,
               .loss =
                   [&](const at::Tensor& scores, const at::Tensor& labels) {
                     const auto loss = task.loss(scores, labels);
                     return has_dimension ? loss.view({1}) : loss;
                   },
               .optimizer = &task.optimizer};
    const Loader loader(small_data(20), {.batch_size = 4});
    return Trainer(quiet({.max_epochs = 1, .log_every_n_steps = 1})).fit(other, loader, loader).metrics;
  };
  EXPECT_EQ(metrics_with(true), metrics_with(false));
}

// One that does all by itself.
struct StepTask {
  test::Net model = SmallTask::make(0.2);
  optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)};
  using Batch = std::tuple<at::Tensor, at::Tensor>;
  at::Tensor step(test::NetImpl& net, const Batch& batch) {
    return torch::nn::functional::cross_entropy(net.forward(std::get<0>(batch)), std::get<1>(batch));
  }
};

TEST(Trainer, TrainsATaskThatHasAStep) {
  const Loader loader(small_data(24), {.batch_size = 4});
  SmallTask parts;
  StepTask whole;
  at::manual_seed(1);
  Trainer(quiet({.max_epochs = 2})).fit(parts, loader);
  at::manual_seed(1);
  Trainer(quiet({.max_epochs = 2})).fit(whole, loader);
  EXPECT_TRUE(test::are_equal(weights_of(*parts.model), weights_of(*whole.model)));
}

TEST(Trainer, DataParallelEqualsOneDevice) {
  const Loader loader(small_data(24), {.batch_size = 8});
  std::vector<std::vector<double>> losses;
  for (const bool is_parallel : {false, true}) {
    SmallTask task(/*drop=*/0.0);
    task.model->norm->options.momentum(0.0);
    task.model->norm->eval();
    auto watch = std::make_shared<Watch>();
    TrainerOptions options{.max_epochs = 2, .callbacks = {watch}};
    if (is_parallel) {
      options.strategy.kind = "data_parallel";
      options.strategy.data_parallel_devices = {at::kCPU, at::kCPU};
    }
    Trainer(quiet(options)).fit(task, loader);
    losses.push_back(watch->losses);
  }
  // Batch norm of half a batch is another one, so only the first loss, before any step, would be equal with it.
  EXPECT_EQ(losses[0].size(), losses[1].size());
  StepTask whole;
  TrainerOptions options{.max_epochs = 1};
  options.strategy.kind = "data_parallel";
  options.strategy.data_parallel_devices = {at::kCPU, at::kCPU};
  options.strategy.device = at::Device(at::kMeta);  // the replicas say where batches go
  EXPECT_EQ(Trainer(quiet(options)).device(), at::kCPU);
  EXPECT_EQ(
      error_of<c10::ValueError>([&] { Trainer(quiet(options)).fit(whole, loader); }),
      "[cohort] Trainer: strategy \"data_parallel\" splits batches among several replicas of the model, so the task "
      "needs loss(output, target) instead of step(net, batch)\n  hint: use strategy \"ddp\", which runs any task");
}

TEST(Trainer, ComputesInLowPrecision) {
  const auto losses_in = [](const std::string& precision) {
    SmallTask task(/*drop=*/0.0, /*rate=*/0.01);
    auto watch = std::make_shared<Watch>();
    TrainerOptions options{.max_epochs = 2, .callbacks = {watch}};
    options.precision = precision;
    Trainer(quiet(options)).fit(task, Loader(small_data(40), {.batch_size = 8}));
    EXPECT_EQ(task.model->first->weight.scalar_type(), precision == "bf16" ? at::kBFloat16 : at::kFloat);
    return watch->losses;
  };
  const auto exact = losses_in("32");
  for (const char* precision : {"bf16-mixed", "16-mixed", "bf16"}) {
    const auto losses = losses_in(precision);
    ASSERT_EQ(losses.size(), exact.size());
    EXPECT_NE(losses, exact) << precision;
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], exact[i], 0.05) << precision;
  }
}

TEST(Trainer, StopsEarly) {
  const auto reason_of = [](EarlyStoppingOptions options, const std::vector<double>& values) {
    Trainer trainer(quiet({}));
    EarlyStopping stopping(std::move(options));
    stopping.on_fit_start(trainer);
    for (size_t i = 0; i < values.size(); ++i) {
      stopping.on_validation_end(trainer, {{"validation/loss", values[i]}});
      if (!stopping.reason().empty()) return std::to_string(i) + " " + stopping.reason();
    }
    return std::string("no");
  };
  EXPECT_EQ(reason_of({.patience = 2}, {3, 2, 2.5, 1, 1, 1}),
            "5 early stopping: validation/loss did not get better than 1 in 2 evaluations");
  EXPECT_EQ(reason_of({.min_delta = 0.5, .patience = 1}, {3, 2.6}),
            "1 early stopping: validation/loss did not get better than 3 in 1 evaluation");
  EXPECT_EQ(reason_of({.highest_is_best = true, .patience = 1}, {1, 2, 3}), "no");
  EXPECT_EQ(reason_of({.stopping_threshold = 0.5}, {3, 0.4}),
            "1 early stopping: validation/loss = 0.4 is better than 0.5");
  EXPECT_EQ(reason_of({.divergence_threshold = 5}, {3, 6}), "1 early stopping: validation/loss = 6 is worse than 5");
  EXPECT_EQ(reason_of({}, {3, std::numeric_limits<double>::quiet_NaN()}), "1 early stopping: validation/loss is nan");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(reason_of({.patience = 2, .check_finite = false}, {nan, 1, 2, 3}),
            "3 early stopping: validation/loss did not get better than 1 in 2 evaluations");
  EXPECT_EQ(reason_of({.patience = 2, .check_finite = false}, {nan, nan}),
            "1 early stopping: validation/loss did not get better than nan in 2 evaluations");
  EXPECT_EQ(
      error_of<c10::ValueError>([&] { reason_of({.monitor = "validation/los"}, {3}); }),
      "[cohort] EarlyStopping: validation gives no \"validation/los\", only \"validation/loss\"\n  hint: monitor one "
      "of these, or give the task a metric of this name");
}

TEST(Trainer, StopsEarlyInAFitAlone) {
  Trainer trainer(quiet({}));
  EarlyStopping stopping({.patience = 1});
  const auto evaluated = [&](double value) { stopping.on_validation_end(trainer, {{"validation/loss", value}}); };
  evaluated(1);
  stopping.on_fit_start(trainer);
  evaluated(3);
  EXPECT_EQ(stopping.reason(), "");
  evaluated(4);
  EXPECT_NE(stopping.reason(), "");
  stopping.on_fit_end(trainer);
  stopping.on_validation_end(trainer, {{"test/loss", 1}});
  stopping.on_fit_start(trainer);
  evaluated(2);
  EXPECT_EQ(stopping.reason(), "");  // what ended the fit before does not end this one
}

TEST(Trainer, LogsOnceInSoManySteps) {
  struct Lines : Logger {
    void log_hyperparameters(const Hyperparameters& values) override { lines.push_back(values.front().first); }
    void log_metrics(int64_t step, const Metrics& values) override {
      lines.push_back(std::to_string(step) + " " + values.front().first);
    }
    void flush() override { lines.push_back("flush"); }
    void close() override {}
    std::vector<std::string> lines;
  };
  auto logger = std::make_shared<Lines>();
  const auto make_logger = [&](int64_t first_step) {
    EXPECT_EQ(first_step, 1);
    return logger;
  };
  SmallTask task;
  Trainer trainer(
      quiet({.max_epochs = 1, .make_logger = make_logger, .hyperparameters = {{"lr", 0.1}}, .log_every_n_steps = 4}));
  const auto result =
      trainer.fit(task, Loader(small_data(40), {.batch_size = 4}), Loader(small_data(8), {.batch_size = 4}));
  trainer.test(task, Loader(small_data(8), {.batch_size = 4}));
  EXPECT_THAT(logger->lines, ElementsAre("lr", "4 train/loss", "8 train/loss", "10 validation/loss",
                                         "10 train/epoch_loss", "10 system/cpu_percent", "flush", "10 test/loss"));
  EXPECT_GT(result.samples_per_second, 0.0);
  EXPECT_GT(result.times[StepPart::kForward].count(), 0);
}

TEST(Trainer, TellsCallbacksOfAnException) {
  struct Note : Callback {
    void on_train_batch_end(Trainer&, const StepReport&) override { TORCH_CHECK(false, "enough"); }
    void on_exception(Trainer&, const std::exception& error) override { text = test::text_of(error); }
    std::string text;
  };
  auto note = std::make_shared<Note>();
  SmallTask task;
  Trainer trainer(quiet({.max_epochs = 1, .callbacks = {note}}));
  EXPECT_EQ(error_of([&] { trainer.fit(task, Loader(small_data(8), {.batch_size = 4})); }), "enough");
  EXPECT_EQ(note->text, "enough");
}

}  // namespace
}  // namespace cohort::train
