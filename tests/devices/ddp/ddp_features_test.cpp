// DDP's features on one and on two devices per rank: the bits of the CPU. Each works on gradients after autograd, and perhaps in
// another stream than the one that made them.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"
#include "cohort/parallel/ddp/hooks/compress_hooks.h"
#include "cohort/parallel/ddp/hooks/power_sgd_hook.h"
#include "cohort/parallel/ddp/hooks/quantization_hooks.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "tests/devices/ddp/device_nets.h"
#include "tests/devices/ddp/device_training.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

using DdpFeatures = DeviceTest;
using Ddp = DistributedDataParallel<TwoDeviceNetImpl>;

struct Feature {
  ddp::Options options = {};
  std::function<void(Ddp&, const Group&)> set_up = {};
  bool fuses_step = false;
  bool clips = false;
  bool joins = false;
  bool rounds_otherwise = false;    // than the CPU
  bool has_16_bits = false;         // on the way
  bool sees_whole_buckets = false;  // which are others on two devices
  int num_local = 0;                // backward passes under no_sync() in each step
};

// Adam hides a wrong norm, as its step does not depend on the gradients' scale, and makes much of the rounding of tiny ones.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Feature& feature, const std::vector<at::Tensor>& params) {
  if (feature.clips) return std::make_unique<torch::optim::SGD>(params, torch::optim::SGDOptions(1.0));
  return std::make_unique<torch::optim::AdamW>(params, torch::optim::AdamWOptions(0.01));
}

Weights train_with(const Feature& feature, int rank, const Group& group, const RankDevices& devices,
                   bool in_side_streams) {
  auto net = make_net<TwoDeviceNet>(rank);
  net->place(devices.first, devices.second);
  auto options = feature.options;
  options.process_group = group;
  options.bucket_cap_mb = 0.01;
  Ddp model(net, options);
  if (feature.set_up) feature.set_up(model, group);
  if (feature.clips) model->track_gradient_norm();
  const auto optimizer = make_optimizer(feature, model->parameters());
  if (feature.fuses_step) model->fuse_step(*optimizer);
  std::optional<InStream> on_first, on_second;
  if (in_side_streams && !devices.first.is_cpu()) on_first.emplace(new_stream(devices.first.index()));
  if (in_side_streams && devices.second != devices.first) on_second.emplace(new_stream(devices.second.index()));
  auto data = data_of(rank);
  const auto train = [&] {
    for (int step = 0; step < 3 + (feature.joins ? rank : 0); ++step) {
      for (int i = 0; i <= feature.num_local; ++i) {
        const auto x = at::randn({16, 20}, data);
        const auto labels = at::randint(5, {16}, data, at::kLong).to(devices.second);
        std::unique_ptr<ddp::NoSync> local;
        if (i < feature.num_local) local.reset(new ddp::NoSync(model->no_sync()));
        torch::nn::functional::cross_entropy(model(x), labels).backward();
      }
      if (feature.clips) nn::utils::clip_grads_with_norm_(model->parameters(), 0.1, model->gradient_norm());
      if (!feature.fuses_step) optimizer->step();
      optimizer->zero_grad();
    }
  };
  if (feature.joins) {
    const auto join = model->join();
    train();
  } else {
    train();
  }
  return weights_of(*net);
}

bool are_nearly_equal(const Weights& first, const Weights& second) { return are_close(first, second); }

auto agreement_of(const Feature& feature) {
  if (feature.has_16_bits) return are_equal_in_16_bits;
  return feature.rounds_otherwise ? are_nearly_equal : are_equal;
}

void expect_bits_of_cpu_with(const Feature& feature) {
  for (const bool on_one_device : {true, false}) {
    if (!on_one_device && feature.sees_whole_buckets) continue;
    SCOPED_TRACE(on_one_device ? "one device" : "two devices, in side streams");
    expect_bits_of_cpu(
        [&](int rank, const Group& group, RankDevices devices) {
          if (on_one_device) devices.second = devices.first;
          return train_with(feature, rank, group, devices, /*in_side_streams=*/!on_one_device);
        },
        agreement_of(feature));
  }
}

template <class Hook>
Feature with_hook(Hook hook) {
  return {.set_up = [hook](Ddp& model, const Group& group) { model->register_comm_hook(group, hook); }};
}

TEST_F(DdpFeatures, AllReduceHook) { expect_bits_of_cpu_with(with_hook(ddp::allreduce_hook)); }

TEST_F(DdpFeatures, CompressionHook) {
  auto feature = with_hook(ddp::fp16_compress_hook);
  feature.has_16_bits = true;
  expect_bits_of_cpu_with(feature);
}

TEST_F(DdpFeatures, QuantizationHook) {
  auto feature = with_hook(ddp::quantization_pertensor_hook);
  feature.sees_whole_buckets = true;
  expect_bits_of_cpu_with(feature);
}

TEST_F(DdpFeatures, PowerSgdHook) {
  expect_bits_of_cpu_with({.set_up = [](Ddp& model, const Group& group) {
    auto state =
        std::make_shared<ddp::PowerSGDState>(ddp::PowerSGDOptions{.process_group = group, .start_power_sgd_iter = 2});
    model->register_comm_hook(state, ddp::power_sgd_hook);
  }});
}

TEST_F(DdpFeatures, StepFusedIntoTheReduction) { expect_bits_of_cpu_with({.fuses_step = true}); }

TEST_F(DdpFeatures, NormFoundDuringTheReduction) { expect_bits_of_cpu_with({.clips = true, .rounds_otherwise = true}); }

TEST_F(DdpFeatures, GradientsOfSeveralPasses) { expect_bits_of_cpu_with({.num_local = 2}); }

TEST_F(DdpFeatures, UnevenBatches) { expect_bits_of_cpu_with({.joins = true}); }

TEST_F(DdpFeatures, BatchedCopiesOfGradients) { expect_bits_of_cpu_with({.options = {.batched_grad_copy = true}}); }

TEST_F(DdpFeatures, MixedPrecision) {
  ddp::Options options;
  options.mixed_precision = ddp::MixedPrecision{.param_dtype = at::kBFloat16, .buffer_dtype = at::kBFloat16};
  expect_bits_of_cpu_with({.options = options, .has_16_bits = true});
  options.mixed_precision->reduce_dtype = at::kFloat;
  expect_bits_of_cpu_with({.options = options, .has_16_bits = true, .num_local = 1});
}

}  // namespace
}  // namespace cohort::sim
