// Autocast, and LibTorch's own gradient clipping and learning-rate schedulers work with DistributedDataParallel as they are. Two
// ranks end with the bits of one process that takes both ranks' shares one after the other (halving is exact), and close to one
// that takes them as one batch.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <mutex>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/precision/autocast.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"
#include "tests/support/rounding.h"

namespace cohort {
namespace {

constexpr int kNumTrainingSteps = 8;

using Schedule = std::function<void(float loss)>;

struct Training {
  bool autocasts = false;
  bool is_in_bfloat16 = false;
  double max_norm = 0;  // 0: no clipping
  std::function<Schedule(torch::optim::Optimizer&)> make_schedule = {};
};

struct Trained {
  std::vector<at::Tensor> weights;
  std::vector<double> norms;  // before clipping
  std::vector<double> rates;  // of each step
};

at::Tensor share_of(int rank, int step) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(100 * step + rank);
  return at::randn({4, 8}, generator, at::kFloat);
}

test::Mlp equal_net(const Training& training = {}) {
  static std::mutex mutex;  // LibTorch's default generator is global
  const std::lock_guard lock(mutex);
  torch::manual_seed(5);
  test::Mlp net;
  if (training.is_in_bfloat16) net->to(at::kBFloat16);
  return net;
}

template <class Model>
at::Tensor loss_of(Model& model, const at::Tensor& x, const Training& training) {
  at::Tensor output;
  if (training.autocasts) {
    const Autocast autocast(at::kCPU);
    output = model(x);
    REQUIRE(output.scalar_type() == at::kBFloat16);
  } else {
    output = model(training.is_in_bfloat16 ? x.to(at::kBFloat16) : x);
  }
  return (output.to(at::kFloat) - x.narrow(1, 0, 4)).pow(2).mean();
}

// `backward` computes the gradients of a step and returns its loss.
Trained train_by(const test::Mlp& net, const Training& training, const std::function<at::Tensor(int step)>& backward) {
  Trained trained;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.2).momentum(0.9));
  const auto schedule = training.make_schedule ? training.make_schedule(optimizer) : Schedule([](float) {});
  for (int step = 0; step < kNumTrainingSteps; ++step) {
    optimizer.zero_grad();
    const auto loss = backward(step);
    if (training.max_norm > 0) {
      trained.norms.push_back(torch::nn::utils::clip_grad_norm_(net->parameters(), training.max_norm));
    }
    trained.rates.push_back(optimizer.param_groups()[0].options().get_lr());
    optimizer.step();
    schedule(loss.item<float>());
  }
  for (const auto& weight : net->parameters()) trained.weights.push_back(weight.detach());
  return trained;
}

Trained in_one_process(const Training& training) {
  auto net = equal_net(training);
  return train_by(net, training, [&](int step) {
    at::Tensor sum = at::zeros({});
    for (int rank = 0; rank < 2; ++rank) {
      const auto loss = loss_of(net, share_of(rank, step), training) / 2;
      loss.backward();
      sum += loss.detach();
    }
    return sum;
  });
}

Trained on_the_joined_batch(const Training& training) {
  auto net = equal_net(training);
  return train_by(net, training, [&](int step) {
    const auto loss = loss_of(net, at::cat({share_of(0, step), share_of(1, step)}), training);
    loss.backward();
    return loss.detach();
  });
}

Trained under_ddp(int rank, const Group& group, const Training& training) {
  auto net = equal_net(training);
  DistributedDataParallel ddp(net, {.process_group = group});
  return train_by(net, training, [&](int step) {
    const auto loss = loss_of(ddp, share_of(rank, step), training);
    loss.backward();
    const auto mean = loss.detach().clone();
    all_reduce(mean, {.op = ReduceOp::AVG, .group = group});
    return mean;
  });
}

// Of weights, of which none is larger than 1.
double rounding_of_weights() { return test::rounding(at::kFloat, kNumTrainingSteps * test::kMlpSums, 1.0); }

// Returns what one process did. `tolerance`: how far the weights may be from those of the joined batch.
Trained expect_ranks_train_as_one_process(const Training& training, double tolerance = rounding_of_weights()) {
  const auto alone = in_one_process(training);
  test::run_rank_threads(2, [&](int rank, const Group& group) {
    const auto trained = under_ddp(rank, group, training);
    REQUIRE(trained.norms == alone.norms);
    REQUIRE(trained.rates == alone.rates);
    for (size_t i = 0; i < alone.weights.size(); ++i) REQUIRE(trained.weights[i].equal(alone.weights[i]));
  });
  const auto joined = on_the_joined_batch(training);
  const auto untrained = equal_net(training)->parameters();
  for (size_t i = 0; i < alone.weights.size(); ++i) {
    EXPECT_TRUE(at::allclose(alone.weights[i], joined.weights[i], 0, tolerance)) << "parameter " << i;
    EXPECT_FALSE(at::allclose(alone.weights[i], untrained[i], 0, 10 * tolerance))
        << "parameter " << i << " has not moved";
  }
  return alone;
}

TEST(DdpWithLibTorch, AutocastOfTheForwardPass) {
  const Training plain, autocast{.autocasts = true};
  // bfloat16 has 8 bits: sums over a share and over the whole batch are rounded at different places.
  const auto rounded = expect_ranks_train_as_one_process(autocast, 5e-3);
  EXPECT_FALSE(rounded.weights[0].equal(in_one_process(plain).weights[0]));
  EXPECT_EQ(rounded.weights[0].scalar_type(), at::kFloat);
}

TEST(DdpWithLibTorch, AModelInBfloat16) {
  const auto rounded = expect_ranks_train_as_one_process({.is_in_bfloat16 = true}, 5e-3);
  EXPECT_EQ(rounded.weights[0].scalar_type(), at::kBFloat16);
}

TEST(DdpWithLibTorch, ClipGradNormSeesTheAveragedGradients) {
  constexpr double kMaxNorm = 0.5;
  const auto clipped = expect_ranks_train_as_one_process({.max_norm = kMaxNorm});
  EXPECT_GT(clipped.norms.front(), kMaxNorm) << "nothing was clipped";
  EXPECT_FALSE(clipped.weights[0].equal(in_one_process({}).weights[0]));
}

// LibTorch's StepLR lowers the rate when step() is called for the (step_size + 1)th time, one epoch later than Python's.
TEST(DdpWithLibTorch, StepLrLowersTheRateOfEachRank) {
  const auto trained = expect_ranks_train_as_one_process({.make_schedule = [](torch::optim::Optimizer& optimizer) {
    auto schedule = std::make_shared<torch::optim::StepLR>(optimizer, /*step_size=*/2, /*gamma=*/0.5);
    return Schedule([schedule](float) { schedule->step(); });
  }});
  EXPECT_EQ(trained.rates, (std::vector<double>{0.2, 0.2, 0.2, 0.1, 0.1, 0.05, 0.05, 0.025}));
}

TEST(DdpWithLibTorch, ReduceLrOnPlateauFollowsTheMeanOfTheRanksLosses) {
  const auto trained = expect_ranks_train_as_one_process({.make_schedule = [](torch::optim::Optimizer& optimizer) {
    using Plateau = torch::optim::ReduceLROnPlateauScheduler;
    auto schedule = std::make_shared<Plateau>(optimizer, Plateau::min, /*factor=*/0.5f, /*patience=*/0);
    return Schedule([schedule](float loss) { schedule->step(loss); });
  }});
  EXPECT_EQ(trained.rates.front(), 0.2);
  EXPECT_LT(trained.rates.back(), 0.2) << "the losses fell in every step";
}

}  // namespace
}  // namespace cohort
