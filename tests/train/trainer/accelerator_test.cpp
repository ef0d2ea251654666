// Loops by hand with an Accelerator, and what finds batch sizes and learning rates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/checkpoint/checkpointer/checkpointer.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"
#include "cohort/train/strategy/accelerator.h"
#include "cohort/train/trainer/tuner.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"
#include "tests/train/trainer/small_task.h"

namespace cohort::train {
namespace {

using test::Loader;
using test::small_data;
using test::SmallTask;
using test::Watch;
using test::weights_of;

// Both ways to train, on whatever ranks there are.
void expect_accelerator_equals_trainer(const std::string& strategy, const std::string& backend) {
  const Loader loader(small_data(38), {.batch_size = 4, .shuffle = true});
  SmallTask by_trainer;
  auto watch = std::make_shared<Watch>();
  {
    Trainer trainer({.strategy = {.kind = strategy, .backend = backend},
                     .max_epochs = 2,
                     .gradient_accumulation_steps = 2,
                     .gradient_clip_norm = 0.5,
                     .seed = 3,
                     .callbacks = {watch},
                     .progress = false});
    at::manual_seed(8);
    trainer.fit(by_trainer, loader);
  }
  SmallTask by_hand;
  std::vector<double> losses;
  Accelerator accelerator(
      {.strategy = {.kind = strategy, .backend = backend}, .gradient_accumulation_steps = 2, .seed = 3});
  at::manual_seed(8);
  auto [model, optimizer, batches] = accelerator.prepare(by_hand.model, by_hand.optimizer, loader);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& [input, target] : batches) {
      accelerator.accumulate();
      const at::Tensor loss = by_hand.loss(model(input), target);
      losses.push_back(loss.item<double>());
      accelerator.backward(loss);
      if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(0.5);
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  TORCH_CHECK(watch->losses == losses, strategy, ": losses differ");
}

TEST(Accelerator, TrainsAsTheTrainerDoes) { expect_accelerator_equals_trainer("single", ""); }

COHORT_WORKER(accelerator_trains) {
  for (const char* strategy : {"ddp", "fsdp"}) {
    expect_accelerator_equals_trainer(strategy, cohort::test::backend_of_tests());
  }
  Accelerator accelerator({.strategy = {.backend = cohort::test::backend_of_tests()}});
  const at::Tensor own = at::full({2}, accelerator.process_index());
  REQUIRE(at::equal(accelerator.gather(own).to(at::kLong), at::tensor({0, 0, 1, 1})));
  REQUIRE(accelerator.reduce(own.to(at::kFloat))[0].item<double>() == 0.5);
  REQUIRE(accelerator.reduce(own.to(at::kFloat), "sum")[0].item<double>() == 1.0);
}

TEST(TrainerRanks, AnAcceleratorTrainsAsTheTrainerDoes) {
  cohort::test::run_workers("accelerator_trains").expect_success();
}

TEST(Accelerator, GivesLossesFloat32) {
  for (const auto& [precision, dtype] :
       {std::pair("bf16-mixed", at::kFloat), {"16-mixed", at::kFloat}, {"32", at::kFloat}, {"bf16", at::kBFloat16}}) {
    SmallTask task;
    Accelerator accelerator({.precision = precision});
    const auto prepared = accelerator.prepare(task.model, task.optimizer, Loader(small_data(8), {.batch_size = 4}));
    EXPECT_EQ(std::get<0>(prepared)(at::ones({4, 6})).scalar_type(), dtype) << precision;
  }
}

// Results of any type.
struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl() { linear = register_module("linear", torch::nn::Linear(6, 3)); }
  std::pair<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& x) {
    return {linear(x), {linear(x), at::ones({2}, at::kDouble)}};
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(TwoHeads);

TEST(Accelerator, GivesFloat32InResultsOfAnyType) {
  TwoHeads net;
  optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  Accelerator accelerator({.precision = "bf16-mixed"});
  const auto prepared = accelerator.prepare(net, optimizer, Loader(small_data(8), {.batch_size = 4}));
  const auto [first, others] = std::get<0>(prepared)(at::ones({4, 6}));
  EXPECT_EQ(first.scalar_type(), at::kFloat);
  EXPECT_EQ(others[0].scalar_type(), at::kFloat);
  EXPECT_EQ(others[1].scalar_type(), at::kDouble);
}

// It would train nothing. Parameters beside the model's, such as a loss's own, are fine.
TEST(Accelerator, OptimizerOfAnotherModelMessage) {
  const Loader loader(small_data(8), {.batch_size = 4});
  SmallTask task, other;
  const std::string text =
      ": none of the optimizer's 6 parameters is one of the model's, so it would train nothing\n  hint: construct the "
      "optimizer with net->parameters() of the trained model, when it has all its parameters";
  const auto error_of = [](const std::function<void()>& call) { return test::error_of<c10::ValueError>(call); };
  EXPECT_EQ(error_of([&] { Accelerator().prepare(task.model, other.optimizer, loader); }),
            "[cohort] Accelerator" + text);
  const auto fit = [&](optim::SGD& optimizer) {
    Task mixed{.model = task.model,
               .loss = [](const at::Tensor& scores, const at::Tensor&) { return scores.sum(); },
               .optimizer = &optimizer};
    Trainer(test::quiet({.max_epochs = 1})).fit(mixed, loader);
  };
  EXPECT_EQ(error_of([&] { fit(other.optimizer); }), "[cohort] Trainer" + text);
  optim::SGD mixed(task.model->second->parameters(), torch::optim::SGDOptions(0.1));
  mixed.add_param_group({{at::zeros({2}).requires_grad_()}});
  EXPECT_EQ(error_of([&] { fit(mixed); }), "no error");
}

TEST(Accelerator, SaysWhatIsWrong) {
  const auto text_of = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const c10::ValueError& error) {
      return test::text_of(error);
    }
    return std::string("no error");
  };
  EXPECT_EQ(text_of([] { Accelerator({.gradient_accumulation_steps = 0}); }),
            "[cohort] Accelerator: gradient_accumulation_steps is at least 1, but got 0");
  Accelerator accelerator;
  EXPECT_EQ(text_of([&] { accelerator.accumulate(); }), "[cohort] Accelerator: prepare() has not been called");
  EXPECT_EQ(text_of([&] { accelerator.reduce(at::ones({1}), "median"); }),
            "[cohort] Accelerator: there is no reduction \"median\"\n  hint: use \"mean\" or \"sum\"");
  SmallTask task;
  const Loader loader(small_data(8), {.batch_size = 4});
  accelerator.prepare(task.model, task.optimizer, loader);
  EXPECT_EQ(text_of([&] { accelerator.prepare(task.model, task.optimizer, loader); }),
            "[cohort] Accelerator: prepare() was called before\n  hint: construct one Accelerator per model, and call "
            "prepare_loader() for more data");
}

// Rank r has `count` + r samples.
struct Stream {
  struct Iterator {
    std::shared_ptr<data::TensorDataset<2>> data;
    int64_t place = 0;
    std::optional<data::detail::ExampleOf<data::TensorDataset<2>>> next() {
      if (place == data->size()) return std::nullopt;
      return data->get(place++);
    }
  };
  std::shared_ptr<data::TensorDataset<2>> data;
  Iterator iterate() const { return {data}; }
};

Stream stream_of(int64_t count) { return {std::make_shared<data::TensorDataset<2>>(small_data(count))}; }

// Whether each batch of an epoch ended a step, and how many samples it had.
template <class SomeLoader>
std::vector<std::pair<bool, int64_t>> steps_of_epoch(Accelerator& accelerator, SmallTask& task, auto& model,
                                                     auto& optimizer, SomeLoader& batches) {
  std::vector<std::pair<bool, int64_t>> steps;
  for (auto& [input, target] : batches) {
    accelerator.accumulate();
    accelerator.backward(task.loss(model(input), target));
    optimizer.step();
    optimizer.zero_grad();
    steps.emplace_back(accelerator.sync_gradients(), input.size(0));
  }
  return steps;
}

using Steps = std::vector<std::pair<bool, int64_t>>;

TEST(Accelerator, TheLastBatchOfAStreamEndsAStep) {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  SmallTask task;
  auto [model, optimizer, batches] =
      accelerator.prepare(task.model, task.optimizer, data::DataLoader(stream_of(11), {.batch_size = 4}));
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(steps_of_epoch(accelerator, task, model, optimizer, batches), (Steps{{false, 4}, {true, 4}, {true, 3}}));
  }
}

TEST(Accelerator, TheLastBatchEndsAStepAlsoWhereAnEpochWentOn) {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  SmallTask task;
  const auto sampler = std::make_shared<data::SequentialSampler>(20);
  auto [model, optimizer, batches] =
      accelerator.prepare(task.model, task.optimizer, Loader(small_data(20), {.batch_size = 4, .sampler = sampler}));
  auto first = batches.begin();
  ++first;
  const auto state = batches.feed().state_dict();
  batches.feed().load_state_dict(state);
  EXPECT_EQ(steps_of_epoch(accelerator, task, model, optimizer, batches), (Steps{{false, 4}, {true, 4}, {true, 4}}));
}

TEST(Accelerator, DataParallelTakesOneTensorMessage) {
  AcceleratorOptions options{.strategy = {.kind = "data_parallel"}};
  options.strategy.data_parallel_devices = {at::kCPU, at::kCPU};
  Accelerator accelerator(options);
  struct PairNetImpl : torch::nn::Cloneable<PairNetImpl> {
    PairNetImpl() { reset(); }
    void reset() override { layer = register_module("layer", torch::nn::Linear(2, 2)); }
    at::Tensor forward(const at::Tensor& a, const at::Tensor& b) { return layer(a + b); }
    torch::nn::Linear layer{nullptr};
  };
  const auto net = std::make_shared<PairNetImpl>();
  optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  auto [model, stepper, batches] = accelerator.prepare(net, optimizer, Loader(small_data(8), {.batch_size = 4}));
  EXPECT_EQ(
      test::error_of<c10::ValueError>([&, &model = model] {
        model(at::ones({4, 2}), at::ones({4, 2}));
      }),
      "[cohort] Accelerator: with strategy \"data_parallel\" a model on several devices takes one tensor and gives "
      "one\n  hint: use strategy \"ddp\", which runs any model");
}

COHORT_WORKER(accelerator_streams) {
  Accelerator accelerator(
      {.strategy = {.backend = cohort::test::backend_of_tests()}, .gradient_accumulation_steps = 2});
  SmallTask task;
  const int64_t count = 11 + 4 * accelerator.process_index();
  auto [model, optimizer, batches] =
      accelerator.prepare(task.model, task.optimizer, data::DataLoader(stream_of(count), {.batch_size = 4}));
  const int64_t last = accelerator.process_index() == 0 ? 3 : 4;
  REQUIRE((steps_of_epoch(accelerator, task, model, optimizer, batches) == Steps{{false, 4}, {true, 4}, {true, last}}));
  // Means of batch norm are each rank's own after training, and rank 0's in evaluation.
  auto test_batches = accelerator.prepare_loader(Loader(small_data(8), {.batch_size = 4}), /*is_training=*/false);
  const auto mean = [&] { return accelerator.gather(task.model->norm->running_mean).view({2, -1}); };
  REQUIRE(!at::equal(mean()[0], mean()[1]));
  const at::Tensor of_first = mean()[0].clone();
  test_batches.begin();
  REQUIRE(at::equal(mean()[0], of_first) && at::equal(mean()[1], of_first));
}

TEST(TrainerRanks, AnAcceleratorTrainsOnUnevenStreams) {
  cohort::test::run_workers("accelerator_streams").expect_success();
}

TEST(Tuner, FindsTheSteepestPlace) {
  std::vector<double> rates;
  std::vector<double> losses;
  for (int i = 0; i < 40; ++i) {
    rates.push_back(std::pow(10.0, -8 + 0.2 * i));
    losses.push_back(3.0 - 2.0 / (1.0 + std::exp(-(i - 25))));
  }
  EXPECT_EQ(steepest_rate(rates, losses), rates[25]);
  EXPECT_EQ(steepest_rate({1, 2}, {1, 2}), std::nullopt);
  losses[25] = losses[26] = std::nan("");
  EXPECT_EQ(steepest_rate(rates, losses), rates[24]);
}

TEST(Tuner, ChangesNothingThatStays) {
  SmallTask task;
  const Loader loader(small_data(64), {.batch_size = 4, .shuffle = true});
  Trainer trainer({.max_epochs = 1, .progress = false});
  trainer.fit(task, loader);
  const auto before = weights_of(*task.model);
  const at::Tensor momentum = static_cast<const torch::optim::SGDParamState&>(*task.optimizer.state().begin()->second)
                                  .momentum_buffer()
                                  .clone();
  const auto rates = trainer.find_learning_rate(task, loader, {.first = 1e-5, .last = 10.0, .steps = 60});
  EXPECT_TRUE(rates.suggestion && *rates.suggestion > 1e-5 && *rates.suggestion < 10.0);
  EXPECT_EQ(rates.rates.size(), rates.losses.size());
  EXPECT_EQ(rates.rates.front(), 1e-5);
  const auto sizes = trainer.find_batch_size(task, loader, {.first = 4, .max = 1000, .steps = 2});
  EXPECT_EQ(sizes.largest, 32);
  EXPECT_EQ(sizes.reason, "no more data");
  EXPECT_EQ(sizes.trials.size(), 4U);
  EXPECT_TRUE(test::are_equal(before, weights_of(*task.model)));
  EXPECT_EQ(task.optimizer.param_groups()[0].options().get_lr(), 0.05);
  EXPECT_TRUE(at::equal(
      momentum,
      static_cast<const torch::optim::SGDParamState&>(*task.optimizer.state().begin()->second).momentum_buffer()));
  EXPECT_EQ(trainer.find_batch_size(task, loader, {.first = 4, .max = 8}).reason, "max");
}

// On the second rank batches from 16 samples on do not fit.
struct GreedyNetImpl : test::NetImpl {
  at::Tensor forward(const at::Tensor& x) {
    if (get_rank() == 1 && x.size(0) >= 16) C10_THROW_ERROR(OutOfMemoryError, "the device is full");
    return NetImpl::forward(x);
  }
};
TORCH_MODULE(GreedyNet);

COHORT_WORKER(tuner_on_ranks) {
  TrainerOptions options{.max_epochs = 1, .progress = false};
  options.strategy.backend = cohort::test::backend_of_tests();
  Trainer trainer(options);
  at::manual_seed(11);
  GreedyNet net;
  auto optimizer =
      ZeroRedundancyOptimizer::make<optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const auto loss = [](const at::Tensor& scores, const at::Tensor& labels) {
    return torch::nn::functional::cross_entropy(scores, labels);
  };
  Task<GreedyNet> task{.model = net, .loss = loss, .optimizer = &optimizer};
  const Loader loader(small_data(128), {.batch_size = 4, .shuffle = true});
  trainer.fit(task, loader);
  const auto before = weights_of(*net);
  const auto momentum = [&] {
    std::vector<at::Tensor> found;
    for (const auto& [key, state] : optimizer.optim().state())
      found.push_back(static_cast<const torch::optim::SGDParamState&>(*state).momentum_buffer().clone());
    return found;
  };
  const auto momentum_before = momentum();
  const auto sizes = trainer.find_batch_size(task, loader, {.first = 4, .max = 1000, .steps = 2});
  REQUIRE(sizes.largest == 8);
  REQUIRE(sizes.reason == (get_rank() == 1 ? "the device is full" : "memory of another rank"));
  trainer.find_learning_rate(task, loader, {.steps = 5});
  REQUIRE(test::are_equal(before, weights_of(*net)));
  REQUIRE(test::are_equal(momentum_before, momentum()));
  trainer.fit(task, loader);
}

TEST(TrainerRanks, TuneWithoutATrace) { cohort::test::run_workers("tuner_on_ranks").expect_success(); }

// Rates up to where float16 overflows make the scale smaller.
TEST(Tuner, KeepsTheScaleOfGradients) {
  const cohort::test::TemporaryFolder folder;
  SmallTask task(/*drop=*/0.0, /*rate=*/0.01);
  Trainer trainer(
      {.precision = "16-mixed", .max_steps = 1, .checkpoint = {.folder = folder.file("run")}, .progress = false});
  const Loader loader(small_data(64), {.batch_size = 8});
  const auto rates =
      trainer.find_learning_rate(task, loader, {.first = 1.0, .last = 1e30, .steps = 20, .early_stop_threshold = {}});
  EXPECT_FALSE(std::isfinite(rates.losses.back()));
  trainer.fit(task, loader);
  checkpoint::ShardedStateDict state;
  state.insert("scaler", checkpoint::StateValue(c10::IValue()));
  checkpoint::Checkpointer(folder.file("run")).load(state, 1);
  EXPECT_EQ(state["scaler"].value.toGenericDict().at("scale").toDouble(), 65536.0);
}

}  // namespace
}  // namespace cohort::train
