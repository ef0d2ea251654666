// Trainer and Accelerator on two ranks, which are processes and have a device each: what they are on the CPU. The hosts of ranks
// meet, too, so late work runs by itself after a while, as on a GPU.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/norm/convert_sync_batch_norm.h"
#include "cohort/train/strategy/accelerator.h"
#include "tests/devices/train/device_fit.h"
#include "tests/support/rank_processes.h"
#include "tests/support/sim_device/stream_backend.h"
#include "tests/support/temporary_folder.h"

namespace cohort::sim {
namespace {

using train::Accelerator;
using train::Trainer;
using train::TrainerOptions;
using train::test::Watch;

using TrainerRanksOnDevices = DeviceTest;

void begin_rank() {
  install_requested_devices();
  set_schedule(requested_schedule());
  register_stream_backend();
}

// fully_shard has one memory for the ranks of a host on the CPU alone.
TrainerOptions of_rank(const std::string& strategy, TrainerOptions options, std::optional<c10::Device> device = {}) {
  options.strategy.kind = strategy;
  options.strategy.backend = backend_of_ranks();
  options.max_epochs = 2;
  options.seed = 4;
  options.strategy.device = device;
  options.strategy.fsdp.one_memory = false;
  return options;
}

void require_as_on_the_cpu(const std::string& strategy, const TrainerOptions& options, bool is_synchronized) {
  const auto fit = [&](std::optional<c10::Device> device) {
    SmallTask task(/*drop=*/0.0);
    if (is_synchronized) convert_sync_batchnorm(task.model);
    const auto outcome = fit_on(task, of_rank(strategy, options, device));
    REQUIRE(device || task.model->norm->running_mean.device() == sim::device(get_rank()));
    return outcome;
  };
  const auto expected = fit(at::kCPU);
  REQUIRE_EQUAL(difference(fit(std::nullopt), expected), "");
}

COHORT_WORKER(trainer_is_as_on_the_cpu) {
  begin_rank();
  TrainerOptions options{.gradient_accumulation_steps = 2, .gradient_clip_norm = 0.5, .log_every_n_steps = 2};
  for (const char* strategy : {"ddp", "fsdp"}) {
    for (const bool is_synchronized : {false, true}) require_as_on_the_cpu(strategy, options, is_synchronized);
  }
  options.strategy.fsdp.offload_policy = fsdp::CPUOffloadPolicy(/*pin_memory=*/true);
  require_as_on_the_cpu("fsdp", options, /*is_synchronized=*/false);
}

TEST_F(TrainerRanksOnDevices, AreAsOnTheCpu) { test::run_workers("trainer_is_as_on_the_cpu").expect_success(); }

// Two ranks with batches of 4 are one process with batches of 8.
COHORT_WORKER(trainer_joins_batches) {
  begin_rank();
  SmallTask joined(/*drop=*/0.0), alone(/*drop=*/0.0);
  convert_sync_batchnorm(joined.model);
  Trainer(quiet(of_rank("ddp", {}))).fit(joined, Loader(small_data(48), {.batch_size = 4}));
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& [x, labels] : Loader(small_data(48), {.batch_size = 8})) {
      alone.loss(alone.model(x), labels).backward();
      alone.optimizer.step();
      alone.optimizer.zero_grad();
    }
  }
  REQUIRE(are_close(sim::weights_of(*joined.model), sim::weights_of(*alone.model)));
}

TEST_F(TrainerRanksOnDevices, SynchronizedBatchNormIsThatOfTheJoinedBatch) {
  test::run_workers("trainer_joins_batches").expect_success();
}

// From the third batch on, as ranks agree on the order of gradients after the first step.
COHORT_WORKER(trainer_hosts_run_ahead) {
  begin_rank();
  for (const char* strategy : {"ddp", "fsdp"}) {
    for (const char* precision : {"32", "bf16-mixed"}) {
      const auto watch = std::make_shared<CountWaits>(/*first_batch=*/2);
      SmallTask task;
      convert_sync_batchnorm(task.model);
      auto options =
          of_rank(strategy, {.max_time = std::chrono::hours(1), .gradient_clip_norm = 0.5, .callbacks = {watch}});
      options.precision = precision;
      fit_on(task, options);
      REQUIRE_EQUAL(c10::str(strategy, " ", precision, ": ", watch->num_waits),
                    c10::str(strategy, " ", precision, ": 0"));
    }
  }
}

TEST_F(TrainerRanksOnDevices, HostsRunAheadOfTraining) {
  COHORT_SKIP_ON_REAL_DEVICES("it counts waits");
  test::run_workers("trainer_hosts_run_ahead").expect_success();
}

// Of one rank's losses one is far too large for float16: all leave that step out, and agree on what they have.
COHORT_WORKER(trainer_leaves_a_step_out) {
  begin_rank();
  struct OverflowOnOneRank : SmallTask {
    at::Tensor loss(const at::Tensor& scores, const at::Tensor& labels) {
      const auto loss = SmallTask::loss(scores, labels);
      return ++num_losses == 2 && get_rank() == 1 ? loss * 1e30 : loss;
    }
    int num_losses = 0;
  };
  struct WeightsOfSteps : train::Callback {
    void on_train_batch_end(Trainer& trainer, const train::StepReport&) override {
      auto& weights = of_steps.emplace_back();
      for (const auto& weight : trainer.strategy().parameters()) weights.push_back(weight.detach().cpu());
    }
    std::vector<Weights> of_steps;
  };
  for (const char* strategy : {"ddp", "fsdp"}) {
    const auto watch = std::make_shared<WeightsOfSteps>();
    OverflowOnOneRank task;
    auto options = of_rank(strategy, {.precision = "16-mixed", .gradient_clip_norm = 0.5, .callbacks = {watch}});
    Trainer(quiet(options)).fit(task, Loader(small_data(16), {.batch_size = 4}));
    REQUIRE(are_equal(watch->of_steps[0], watch->of_steps[1]));
    REQUIRE(!are_equal(watch->of_steps[1], watch->of_steps[2]));
    for (const auto& weight : watch->of_steps.back()) REQUIRE(weight.isfinite().all().item<bool>());
  }
}

TEST_F(TrainerRanksOnDevices, LeaveAStepOutTogether) {
  test::run_workers("trainer_leaves_a_step_out").expect_success();
}

// With dropout, which draws from each device's generator, and each rank's own numbers there.
COHORT_WORKER(trainer_goes_on_on_devices) {
  begin_rank();
  const std::string folder = test::worker_arguments()[0];
  for (const std::string strategy : {"ddp", "fsdp"}) {
    SmallTask whole, first, second;
    TrainerOptions options;
    options.precision = strategy == "ddp" ? "16-mixed" : "32";
    const auto expected = fit_on(whole, of_rank(strategy, options));
    options.checkpoint.folder = folder + "/" + strategy;
    auto beginning = options;
    beginning.callbacks = {std::make_shared<Watch>(8)};
    auto losses = fit_on(first, of_rank(strategy, beginning)).losses;
    barrier();
    const auto rest = fit_on(second, of_rank(strategy, options));
    losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
    REQUIRE(losses == expected.losses);
    REQUIRE(are_equal(rest.weights, expected.weights));
  }
}

TEST_F(TrainerRanksOnDevices, GoOnInTheMiddleOfAnEpochWithTheSameBits) {
  const test::TemporaryFolder folder;
  test::run_workers("trainer_goes_on_on_devices", {.arguments = {folder.path()}}).expect_success();
}

COHORT_WORKER(accelerator_on_devices) {
  begin_rank();
  for (const char* strategy : {"ddp", "fsdp"}) {
    const auto by_hand = [&](std::optional<c10::Device> device) {
      SmallTask task(/*drop=*/0.0);
      Accelerator accelerator({.strategy = {.kind = strategy,
                                            .device = device,
                                            .backend = backend_of_ranks(),
                                            .fsdp = {.one_memory = false}},
                               .gradient_accumulation_steps = 2,
                               .seed = 4});
      auto [model, optimizer, loader] =
          accelerator.prepare(task.model, task.optimizer, Loader(small_data(38), {.batch_size = 4, .shuffle = true}));
      std::vector<at::Tensor> losses;
      for (auto& [x, labels] : loader) {
        accelerator.accumulate();
        const auto loss = task.loss(model(x), labels);
        losses.push_back(accelerator.reduce(loss));
        accelerator.backward(loss);
        if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(0.5);
        optimizer.step();
        optimizer.zero_grad();
      }
      const auto own = at::full({2}, get_rank(), accelerator.device());
      REQUIRE(at::equal(accelerator.gather(own).cpu(), at::tensor({0, 0, 1, 1}, own.scalar_type())));
      return numbers_of(losses);
    };
    const auto got = by_hand(std::nullopt), expected = by_hand(at::kCPU);
    REQUIRE(got.size() == expected.size());
    for (size_t i = 0; i < got.size(); ++i) REQUIRE(std::abs(got[i] - expected[i]) < (is_real() ? 1e-4 : 1e-6));
  }
}

TEST_F(TrainerRanksOnDevices, AnAcceleratorIsAsOnTheCpu) {
  test::run_workers("accelerator_on_devices").expect_success();
}

}  // namespace
}  // namespace cohort::sim
