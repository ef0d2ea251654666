// DistributedDataParallel in programs that use streams of their own. Buckets are filled, reduced and handed out in streams that
// the program chose, and a gradient must not be read before it is written, nor its memory given on before it is read.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <optional>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "tests/devices/ddp/device_nets.h"
#include "tests/devices/ddp/device_training.h"
#include "tests/support/inline_engine.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

using DdpStreams = DeviceTest;

// Later than all others, so that whatever forgets to wait for it comes before.
c10::Stream new_late_stream(c10::Device device) {
  const auto stream = new_stream(device.index());
  queue_of(stream).make_late();
  return stream;
}

void run_in_late_stream(std::optional<InStream>& in, c10::Device device) {
  if (!device.is_cpu()) in.emplace(new_late_stream(device));
}

struct TwoStreams {
  bool whole_step_in_side = false;  // else only the net's left half
  bool left_is_first = true;
  bool holds_accumulators = false;   // whose stream is then the one in which they were made
  bool changes_side_stream = false;  // after a step without synchronization
  bool side_is_prompt = false;       // else it is late
};

Weights train_two_stream_net(int rank, c10::Device device, const ddp::Options& options, const TwoStreams& how) {
  auto net = make_net<TwoStreamNet>(rank);
  net->to(device);
  net->left_is_first = how.left_is_first;
  if (!how.whole_step_in_side && !device.is_cpu()) net->side = new_late_stream(device);
  if (net->side && how.side_is_prompt) queue_of(*net->side).make_prompt();
  std::vector<torch::autograd::Edge> accumulators;
  if (how.holds_accumulators) {
    for (const auto& parameter : net->parameters()) {
      accumulators.push_back(torch::autograd::impl::gradient_edge(parameter));
    }
  }
  DistributedDataParallel model(net, options);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  auto data = data_of(rank);
  std::optional<InStream> in;
  if (how.whole_step_in_side) run_in_late_stream(in, device);
  std::vector<at::Tensor> inputs;  // all before the first step, because this copy waits for the device
  for (int step = 0; step < 4; ++step) inputs.push_back(at::randn({16, 20}, data).to(device));
  for (const auto& x : inputs) {
    if (how.changes_side_stream) {
      if (net->side) net->side = new_stream(device.index());
      const auto local = model->no_sync();
      model(x).pow(2).mean().backward();
      if (net->side) net->side = new_late_stream(device);
    }
    model(x).pow(2).mean().backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  return weights_of(*net);
}

void expect_bits_of_cpu_of(ddp::Engine engine, const TwoStreams& how) {
  expect_bits_of_cpu([&](int rank, const Group& group, const RankDevices& devices) {
    return train_two_stream_net(rank, devices.first, {.process_group = group, .engine = engine}, how);
  });
}

void expect_bits_of_cpu_in(const TwoStreams& how) {
  for_each_engine([&](ddp::Engine engine) { expect_bits_of_cpu_of(engine, how); });
}

TEST_F(DdpStreams, AllInASideStream) { expect_bits_of_cpu_in({.whole_step_in_side = true}); }

// One bucket holds gradients that two streams write.
TEST_F(DdpStreams, OneBucketOfTwoStreams) {
  expect_bits_of_cpu_in({.left_is_first = true});
  expect_bits_of_cpu_in({.left_is_first = false});
}

TEST_F(DdpStreams, OneBucketOfTwoStreamsWithAccumulatorsOfAnother) {
  expect_bits_of_cpu_in({.holds_accumulators = true});
}

// The side stream gives a gradient's memory to its next owner as soon as the program lets go of it, while the default stream,
// which only runs what somebody waits for, has not begun to reduce it.
TEST_F(DdpStreams, OneBucketOfTwoStreamsOfWhichTheSideIsAhead) {
  set_schedule({.default_is_late = true, .sides_are_late = true, .patience = std::chrono::hours(1)});
  expect_bits_of_cpu_in({.side_is_prompt = true});
  expect_bits_of_cpu_in({.left_is_first = false, .side_is_prompt = true});
}

// A gradient that one stream has made is averaged in another, and its memory given on by the first. Not with LibTorch's reducer:
// its gradients stay where autograd put them, so that it is the program that must record their use.
TEST_F(DdpStreams, AGradientOfAnotherStreamIsKeptUntilTheBucketHasIt) {
  for (const auto engine : {ddp::Engine::kCohort, ddp::kInline}) {
    expect_bits_of_cpu_of(engine, {.changes_side_stream = true});
  }
}

// The spare layer is unused here, there and everywhere; gradients accumulate over two steps.
enum class Side { kNothing, kWholeSteps, kBackward };

Weights train_sandwich(int rank, const RankDevices& devices, const ddp::Options& options, Side side) {
  auto net = make_net<Sandwich>(rank);
  net->place(devices.first, devices.second);
  DistributedDataParallel model(net, options);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  auto data = data_of(rank);
  std::optional<InStream> on_first, on_second;
  if (side == Side::kWholeSteps) {
    run_in_late_stream(on_first, devices.first);
    run_in_late_stream(on_second, devices.second);
  }
  for (int step = 0; step < 6; ++step) {
    net->uses_spare = options.find_unused_parameters ? step % 2 == 0 && rank == 1 : !options.static_graph;
    const auto x = at::randn({16, 20}, data);
    if (step != 2) optimizer.zero_grad(/*set_to_none=*/step < 3);
    if (step == 1) {
      const auto local = model->no_sync();
      model(x).pow(2).mean().backward();
      continue;
    }
    const auto loss = model(x).pow(2).mean();
    {
      std::optional<InStream> of_first, of_second;
      if (side == Side::kBackward) {
        run_in_late_stream(of_first, devices.first);
        run_in_late_stream(of_second, devices.second);
      }
      loss.backward();
    }
    optimizer.step();
  }
  return weights_of(*net);
}

void expect_bits_of_cpu_for_sandwich(const ddp::Options& options, Side side) {
  expect_bits_of_cpu([&](int rank, const Group& group, const RankDevices& devices) {
    auto own = options;
    own.process_group = group;
    return train_sandwich(rank, devices, own, side);
  });
}

TEST_F(DdpStreams, ABucketWaitsForTheOneBeforeIt) {
  for_each_engine([](ddp::Engine engine) {
    expect_bits_of_cpu_for_sandwich({.engine = engine}, Side::kNothing);
    expect_bits_of_cpu_for_sandwich({.engine = engine}, Side::kWholeSteps);
  });
}

TEST_F(DdpStreams, UnusedParametersOfAnotherDevice) {
  for_each_engine([](ddp::Engine engine) {
    expect_bits_of_cpu_for_sandwich({.find_unused_parameters = true, .engine = engine}, Side::kNothing);
  });
}

TEST_F(DdpStreams, AStaticGraphThatLeavesParametersOfAnotherDeviceUnused) {
  for_each_engine([](ddp::Engine engine) {
    expect_bits_of_cpu_for_sandwich({.static_graph = true, .engine = engine}, Side::kNothing);
  });
}

// Not with LibTorch's reducer, which zeroes the slots of unused parameters in the stream of whichever hook comes first, and
// records no use of its memory.
void expect_bits_of_cpu_with_optimizers_aside() {
  for (const auto engine : {ddp::Engine::kCohort, ddp::kInline}) {
    expect_bits_of_cpu_for_sandwich({.find_unused_parameters = true, .engine = engine}, Side::kWholeSteps);
    expect_bits_of_cpu_for_sandwich({.find_unused_parameters = true, .engine = engine}, Side::kBackward);
    expect_bits_of_cpu_for_sandwich({.static_graph = true, .engine = engine}, Side::kWholeSteps);
  }
}

TEST_F(DdpStreams, UnusedParametersWhileTheOptimizerIsInASideStream) { expect_bits_of_cpu_with_optimizers_aside(); }

// Then a side stream may fill memory that it got back before the default stream has read it.
TEST_F(DdpStreams, UnusedParametersWhileTheOptimizerIsInASideStreamAndEachRunsAtOnce) {
  set_schedule({.patience = std::chrono::milliseconds(0)});
  for (int i = 0; i < 3; ++i) expect_bits_of_cpu_with_optimizers_aside();
}

}  // namespace
}  // namespace cohort::sim
