// Trainer and Accelerator on devices of one process: the bits of the CPU, and of loops by hand on the device. Work in streams is
// as late as can be, so that a missing wait has old numbers; and a wait that nobody needs is found, too.
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <optional>

#include "cohort/checkpoint/state/rng_state.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/optim/grad_scaler.h"
#include "cohort/parallel/precision/autocast.h"
#include "cohort/train/optim/lr_scheduler.h"
#include "cohort/train/strategy/accelerator.h"
#include "tests/checkpoint/job_of_one.h"
#include "tests/devices/in_stream.h"
#include "tests/devices/train/device_fit.h"
#include "tests/support/temporary_folder.h"

namespace cohort::sim {
namespace {

using train::Accelerator;
using train::FiniteCheck;
using train::Trainer;
using train::TrainerOptions;
using train::test::Watch;

class TrainerDevices : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    run_late_work_on_demand_only();
  }
};

TrainerOptions two_epochs(TrainerOptions options, std::optional<c10::Device> device = {}) {
  options.max_epochs = 2;
  options.seed = 4;
  options.strategy.device = device;
  return options;
}

Outcome fit_without_dropout(const TrainerOptions& options) {
  SmallTask task(/*drop=*/0.0);
  return fit_on(task, options);
}

TEST_F(TrainerDevices, EqualsTheCpu) {
  for (TrainerOptions options : {TrainerOptions{},
                                 {.gradient_accumulation_steps = 2, .gradient_clip_norm = 0.5, .log_every_n_steps = 3},
                                 {.gradient_clip_value = 0.01, .val_check_interval = 4}}) {
    const auto expected = fit_without_dropout(two_epochs(options, at::kCPU));
    EXPECT_EQ(difference(fit_without_dropout(two_epochs(options)), expected), "");
    const InStream in(latest_stream(device(3)));
    EXPECT_EQ(difference(fit_without_dropout(two_epochs(options, device(3))), expected), "");
  }
}

TEST_F(TrainerDevices, ReplicasEqualThoseOnTheCpu) {
  const auto fit_replicas = [](const std::vector<c10::Device>& devices) {
    SmallTask task(/*drop=*/0.0);
    // Parts begin at multiples of 32 bytes: the CPU's kernels round by where a row begins.
    const auto outcome = fit_on(
        task, {.strategy = {.kind = "data_parallel", .data_parallel_devices = devices}, .max_epochs = 2, .seed = 4},
        {56, 8});
    EXPECT_EQ(task.model->first->weight.device(), devices.front());
    return outcome;
  };
  const auto expected = fit_replicas({at::kCPU, at::kCPU});
  EXPECT_EQ(difference(fit_replicas({device(0), device(1)}), expected), "");
  EXPECT_EQ(difference(fit_replicas({device(2), device(1)}), expected), "");
}

// With float16 it waits once a step: is a gradient infinite?
TEST_F(TrainerDevices, TheHostRunsAheadOfTraining) {
  COHORT_SKIP_ON_REAL_DEVICES("it counts waits");
  for (const auto& [precision, waits] : {std::pair("32", 0), {"bf16-mixed", 0}, {"bf16", 0}, {"16-mixed", 22}}) {
    for (TrainerOptions options :
         {TrainerOptions{}, {.gradient_clip_norm = 0.5}, {.gradient_clip_value = 0.1, .log_every_n_steps = 100}}) {
      const auto watch = std::make_shared<CountWaits>();
      options.precision = precision;
      options.callbacks = {watch};
      SmallTask task;
      const InStream in(latest_stream(device(0)));
      fit_on(task, two_epochs(options, device(0)));
      EXPECT_EQ(watch->num_batches, 22);
      EXPECT_EQ(watch->num_waits, waits) << precision;
    }
  }
}

// How often the host has waited since the first batch.
struct WaitsOfEvaluation {
  void update(const at::Tensor&, const at::Tensor&) {
    if (num_batches++ == 0) begin = num_host_waits();
    num_waits = num_host_waits() - begin;
  }
  double compute() const { return static_cast<double>(num_waits); }
  void reset() { num_batches = 0; }
  uint64_t begin = 0, num_waits = 0;
  int num_batches = 0;
};

struct MeanOfScores : train::Mean {
  void update(const at::Tensor& scores, const at::Tensor&) { Mean::update(scores.mean(), scores.size(0)); }
};

TEST_F(TrainerDevices, TheHostRunsAheadOfEvaluation) {
  COHORT_SKIP_ON_REAL_DEVICES("it counts waits");
  SmallTask task, on_cpu;
  const Loader loader(small_data(38), {.batch_size = 4});
  on_cpu.metrics = {{"accuracy", train::Accuracy()}, {"mean", MeanOfScores()}};
  const auto expected = Trainer(quiet({.strategy = {.device = at::kCPU}})).test(on_cpu, loader);
  task.metrics = {{"waits", WaitsOfEvaluation()}, {"accuracy", train::Accuracy()}, {"mean", MeanOfScores()}};
  const InStream in(latest_stream(device(0)));
  const auto values = Trainer(quiet({.strategy = {.device = device(0)}})).test(task, loader);
  EXPECT_EQ(values[0], expected[0]);
  EXPECT_EQ(values[1], (std::pair<std::string, double>("test/waits", 0.0)));
  EXPECT_EQ(values[2], expected[1]);
  EXPECT_EQ(values[3], expected[2]);
}

// The Trainer computes the loss in autocast, too; programs with an Accelerator do so outside, of float32.
at::Tensor loss_by_hand(SmallTask& task, const std::string& precision, bool is_outside, const at::Tensor& x,
                        const at::Tensor& labels) {
  if (precision == "bf16") return task.loss(task.model(x.to(at::kBFloat16)), labels);
  at::Tensor scores;
  {
    const Autocast autocast(type(), {.dtype = precision == "16-mixed" ? at::kHalf : at::kBFloat16});
    scores = task.model(x);
    if (!is_outside) return task.loss(scores, labels);
  }
  return task.loss(scores.to(at::kFloat), labels);
}

Outcome by_hand(const std::string& precision, c10::Device device, bool is_loss_outside) {
  SmallTask task(/*drop=*/0.0, /*rate=*/0.01);
  task.model->to(device);
  if (precision == "bf16") task.model->to(at::kBFloat16);
  amp::GradScaler scaler({.device = type(), .enabled = precision == "16-mixed"});
  std::vector<at::Tensor> losses;
  const Loader loader(small_data(38), {.batch_size = 4, .device = device});
  for (int epoch = 0; epoch < 2; ++epoch) {
    int batch = 0;
    for (auto& [x, labels] : loader) {
      const auto loss = loss_by_hand(task, precision, is_loss_outside, x, labels);
      losses.push_back(loss.detach());
      scaler.scale(loss / 2.0).backward();
      if (++batch % 2 != 0 && batch != loader.size()) continue;
      scaler.unscale_(task.optimizer);
      nn::utils::clip_grad_norm_(task.model->parameters(), 0.5);
      scaler.step(task.optimizer);
      scaler.update();
      task.optimizer.zero_grad();
    }
  }
  return {numbers_of(losses), sim::weights_of(*task.model), {}};
}

Outcome by_trainer(const std::string& precision, c10::Device device) {
  SmallTask task(/*drop=*/0.0, /*rate=*/0.01);
  const auto kept = std::make_shared<KeepLosses>();
  TrainerOptions options = two_epochs({.gradient_accumulation_steps = 2, .gradient_clip_norm = 0.5}, device);
  options.precision = precision;
  options.callbacks = {kept};
  Trainer(quiet(options)).fit(task, Loader(small_data(38), {.batch_size = 4}));
  return {numbers_of(kept->losses), sim::weights_of(*task.model), {}};
}

Outcome by_accelerator(const std::string& precision, c10::Device device) {
  SmallTask task(/*drop=*/0.0, /*rate=*/0.01);
  Accelerator accelerator({.strategy = {.device = device}, .precision = precision, .gradient_accumulation_steps = 2});
  auto [model, optimizer, loader] =
      accelerator.prepare(task.model, task.optimizer, Loader(small_data(38), {.batch_size = 4}));
  std::vector<at::Tensor> losses;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& [x, labels] : loader) {
      EXPECT_EQ(x.device(), device);
      accelerator.accumulate();
      const auto loss = task.loss(model(x), labels);
      losses.push_back(loss.detach());
      accelerator.backward(loss);
      if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(0.5);
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  return {numbers_of(losses), sim::weights_of(*task.model), {}};
}

// And nearly what float32 gives on the CPU.
TEST_F(TrainerDevices, PrecisionsEqualALoopByHandThere) {
  const auto exact = by_trainer("32", at::kCPU).losses;
  for (const auto& [precision, tolerance] : {std::pair("bf16-mixed", 0.05), {"16-mixed", 0.05}, {"bf16", 0.2}}) {
    SCOPED_TRACE(precision);
    const InStream in(latest_stream(device(1)));
    const auto expected = by_hand(precision, device(1), /*is_loss_outside=*/false);
    EXPECT_EQ(difference(by_trainer(precision, device(1)), expected), "");
    EXPECT_EQ(difference(by_accelerator(precision, device(1)), by_hand(precision, device(1), /*is_loss_outside=*/true)),
              "");
    ASSERT_EQ(expected.losses.size(), exact.size());
    EXPECT_NE(expected.losses, exact);
    for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(expected.losses[i], exact[i], tolerance);
  }
}

// Gradients that are infinite in one step.
void overflow_in_step(SmallTask& task, int step) {
  task.model->second->weight.register_hook([step, calls = std::make_shared<int>(0)](const at::Tensor& gradient) {
    return (*calls)++ == step ? gradient * INFINITY : gradient;
  });
}

TEST_F(TrainerDevices, AStepThatOverflowsIsLeftOut) {
  SmallTask task;
  overflow_in_step(task, 1);
  optim::StepLR decay(task.optimizer, 1, 0.5);
  task.schedulers = {train::every_step(decay)};
  Trainer trainer(quiet({.precision = "16-mixed", .max_steps = 4, .gradient_clip_norm = 1.0}));
  trainer.fit(task, Loader(small_data(16), {.batch_size = 4}));
  EXPECT_EQ(task.optimizer.param_groups()[0].options().get_lr(), 0.05 / 8);
  for (const auto& weight : sim::weights_of(*task.model)) EXPECT_TRUE(weight.isfinite().all().item<bool>());
}

TEST_F(TrainerDevices, AnAcceleratorHalvesItsScale) {
  SmallTask task;
  overflow_in_step(task, 1);
  Accelerator accelerator({.precision = "16-mixed"});
  auto [model, optimizer, loader] =
      accelerator.prepare(task.model, task.optimizer, Loader(small_data(12), {.batch_size = 4}));
  std::vector<bool> steps;
  for (auto& [x, labels] : loader) {
    accelerator.accumulate();
    accelerator.backward(task.loss(model(x), labels));
    optimizer.step();
    optimizer.zero_grad();
    steps.push_back(optimizer.has_stepped());
  }
  EXPECT_EQ(steps, (std::vector{true, false, true}));
  EXPECT_EQ(accelerator.precision().scale(), 32768.0);
}

// The whole run, and one that was cut after so many steps, have the same losses and weights; with dropout, which draws from the
// devices' generators.
void expect_equal_after_cut(int64_t cut, const TrainerOptions& options) {
  SmallTask whole, first, second;
  const auto expected = fit_on(whole, two_epochs(options, options.strategy.device));
  const test::TemporaryFolder folder;
  auto parts = two_epochs(options, options.strategy.device);
  parts.checkpoint.folder = folder / "run";
  auto beginning = parts;
  beginning.callbacks = {std::make_shared<Watch>(cut)};
  auto losses = fit_on(first, beginning).losses;
  auto rest = fit_on(second, parts);
  losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
  EXPECT_EQ(losses, expected.losses) << "cut after step " << cut;
  EXPECT_TRUE(are_equal(rest.weights, expected.weights)) << "cut after step " << cut;
}

TEST_F(TrainerDevices, GoesOnInTheMiddleOfAnEpochWithTheSameBits) {
  for (const int64_t cut : {3, 11, 14}) expect_equal_after_cut(cut, {});
  const InStream in(latest_stream(device(1)));
  expect_equal_after_cut(
      3, {.strategy = {.device = device(1)}, .precision = "16-mixed", .gradient_accumulation_steps = 2});
}

TEST_F(TrainerDevices, ReplicasGoOnWithTheSameBits) {
  COHORT_SKIP_WITH_FEWER_DEVICES_THAN(3);  // of one generator they would draw in any order
  expect_equal_after_cut(3, {.strategy = {.kind = "data_parallel", .data_parallel_devices = {device(1), device(2)}}});
}

TEST_F(TrainerDevices, GoesOnFromMemoryWithTheSameBits) {
  const auto run = [](int64_t stop_at, std::optional<int64_t> memory_every_steps) {
    SmallTask task;
    const auto watch = std::make_shared<Watch>(stop_at);
    TrainerOptions options = two_epochs({.strategy = {.kind = "single"}, .callbacks = {watch}}, device(0));
    options.checkpoint.memory_every_steps = memory_every_steps;
    fit_on(task, options);
    return watch->losses;
  };
  const auto expected = run(0, std::nullopt);
  const checkpoint::JobOfOne job;
  auto losses = run(3, 1);
  EXPECT_EQ(losses.size(), 3U);
  const auto rest = run(0, 1);
  losses.insert(losses.end(), rest.begin(), rest.end());
  EXPECT_EQ(losses, expected);
}

// A checkpoint of the CPU has no random numbers of devices.
TEST_F(TrainerDevices, GoesOnWithACheckpointOfTheCpu) {
  const test::TemporaryFolder folder;
  SmallTask whole(/*drop=*/0.0), first(/*drop=*/0.0), second(/*drop=*/0.0);
  const auto expected = fit_on(whole, two_epochs({}, at::kCPU));
  auto options = two_epochs({.checkpoint = {.folder = folder / "run"}}, at::kCPU);
  options.callbacks = {std::make_shared<Watch>(4)};
  fit_on(first, options);
  options.callbacks.clear();
  options.strategy.device = device(2);
  EXPECT_TRUE(are_equal(fit_on(second, options).weights, expected.weights));
}

// The optimizer, LibTorch's own, has made steps on the CPU.
TEST_F(TrainerDevices, GoesOnWithAnOptimizerThatHasStepped) {
  std::vector<Weights> ends;
  for (const auto second : {c10::Device(at::kCPU), device(1)}) {
    SmallTask task(/*drop=*/0.0);
    torch::optim::AdamW optimizer(task.model->parameters());
    train::Task with_adamw{
        .model = task.model,
        .loss = [&](const at::Tensor& scores, const at::Tensor& labels) { return task.loss(scores, labels); },
        .optimizer = &optimizer};
    const Loader loader(small_data(20), {.batch_size = 4});
    Trainer(quiet({.strategy = {.device = at::kCPU}, .max_epochs = 1})).fit(with_adamw, loader);
    Trainer(quiet({.strategy = {.device = second}, .max_epochs = 1})).fit(with_adamw, loader);
    ends.push_back(sim::weights_of(*task.model));
  }
  // The bias before the norm has gradients of 0, but for what is rounded.
  EXPECT_TRUE(is_real() ? are_close(ends[1], ends[0], 1e-2, 1e-2) : are_equal(ends[1], ends[0]));
}

std::string error_with_nan_in_the_second_batch(FiniteCheck check, int64_t log_every_n_steps) {
  SmallTask task;
  auto data = small_data(8);
  data.tensors()[0][5][2].fill_(NAN);
  Trainer trainer(quiet({.max_epochs = 1, .finite_check = check, .log_every_n_steps = log_every_n_steps}));
  return train::test::error_of([&] { trainer.fit(task, Loader(data, {.batch_size = 4})); });
}

TEST_F(TrainerDevices, NamesTheFirstTensorThatIsNotFinite) {
  const std::string expected =
      "[cohort] Trainer: the loss is nan in step 1 (epoch 0, batch 1) on rank 0\n  the first tensor that is not finite "
      "is tensor 0 of the batch, which holds nan or infinity in 1 of 24 elements\n  hint: lower the learning rate, set "
      "gradient_clip_norm, or check the data; finite_check = FiniteCheck::kNone turns this check off";
  EXPECT_EQ(error_with_nan_in_the_second_batch(FiniteCheck::kLoss, 2), expected);
  EXPECT_EQ(error_with_nan_in_the_second_batch(FiniteCheck::kGradients, 50), expected);
  EXPECT_EQ(error_with_nan_in_the_second_batch(FiniteCheck::kLoss, 50), "no error");
}

TEST_F(TrainerDevices, NamesTheFirstGradientThatIsNotFinite) {
  SmallTask task;
  overflow_in_step(task, 1);
  Trainer trainer(quiet({.max_epochs = 1, .finite_check = FiniteCheck::kGradients}));
  EXPECT_EQ(train::test::error_of([&] { trainer.fit(task, Loader(small_data(8), {.batch_size = 4})); }).substr(0, 167),
            "[cohort] Trainer: gradients are not finite in step 1 (epoch 0, batch 1) on rank 0\n  the first one is the "
            "gradient of \"second.weight\", which holds nan or infinity in 48");
}

// Rates up to where everything overflows leave neither another scale nor other random numbers behind.
TEST_F(TrainerDevices, FindingALearningRateChangesNothingThatStays) {
  std::vector<Outcome> outcomes;
  for (const bool finds : {false, true}) {
    SmallTask task(/*drop=*/0.2, /*rate=*/0.01);
    const auto kept = std::make_shared<KeepLosses>();
    TrainerOptions options = two_epochs({.precision = "16-mixed", .callbacks = {kept}}, device(1));
    Trainer trainer(quiet(options));
    const Loader loader(small_data(38), {.batch_size = 4});
    if (finds) {
      trainer.find_learning_rate(task, loader, {.first = 1.0, .last = 1e30, .steps = 30, .early_stop_threshold = {}});
      kept->losses.clear();
    }
    trainer.fit(task, loader);
    outcomes.push_back({numbers_of(kept->losses), sim::weights_of(*task.model), {}});
  }
  EXPECT_EQ(difference(outcomes[1], outcomes[0]), "");
}

TEST_F(TrainerDevices, PredictionsStayThere) {
  SmallTask task;
  const auto data = small_data(13);
  Trainer trainer(quiet({.strategy = {.device = device(2)}}));
  const auto outputs = trainer.predict(task, Loader(data, {.batch_size = 4}));
  EXPECT_EQ(outputs.front().device(), device(2));
  task.model->to(at::kCPU);
  task.model->eval();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::allclose(at::cat(outputs).cpu(), task.model(data.tensors()[0])));
}

TEST_F(TrainerDevices, ShowsAnEpochsMeanLoss) {
  const auto line_on = [](c10::Device device) {
    SmallTask task(/*drop=*/0.0);
    const auto watch = std::make_shared<CountWaits>();
    testing::internal::CaptureStdout();
    Trainer({.strategy = {.device = device}, .max_epochs = 1, .callbacks = {watch}})
        .fit(task, Loader(small_data(40), {.batch_size = 4}));
    const auto text = testing::internal::GetCapturedStdout();
    EXPECT_EQ(watch->num_waits, 0);
    const auto begin = text.find("loss ", text.find("10 steps in"));
    EXPECT_NE(begin, std::string::npos) << text;
    return text.substr(begin, text.find("  ", begin) - begin);
  };
  EXPECT_EQ(line_on(device(0)), line_on(at::kCPU));
}

}  // namespace
}  // namespace cohort::sim
