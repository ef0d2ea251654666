// States of models on devices, and their copies: what is read or set while kernels of a late stream still write or read it. A
// copy that waits for the wrong stream has old numbers, and host code that touches the device's memory ends the program.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <map>
#include <string>

#include "cohort/checkpoint/recovery/memory_snapshot.h"
#include "cohort/checkpoint/sharded/async_save.h"
#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "cohort/checkpoint/state/distributed_state.h"
#include "tests/checkpoint/job_of_one.h"
#include "tests/devices/fsdp/device_blocks.h"
#include "tests/devices/in_stream.h"
#include "tests/support/sim_device/streams.h"
#include "tests/support/temporary_folder.h"

namespace cohort::sim {
namespace {

using checkpoint::ModelAndOptimizerState;
using checkpoint::ShardedStateDict;
using checkpoint::StateDictOptions;
using checkpoint::StateValue;

using CheckpointRanksOnDevices = DeviceTest;

// One process, so that nobody but the test demands late work.
class CheckpointDevices : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    run_late_work_on_demand_only();
  }
};

std::map<std::string, at::Tensor> tensors_on_cpu(const ModelAndOptimizerState& state) {
  std::map<std::string, at::Tensor> result;
  for (const auto* const each : {&state.model, &state.optimizer}) {
    for (const auto& item : *each) {
      if (item.value().is_tensor()) result.emplace(item.key(), item.value().tensor.detach().cpu());
    }
  }
  return result;
}

void require_close(const ModelAndOptimizerState& got, const ModelAndOptimizerState& wanted) {
  const auto tensors = tensors_on_cpu(got);
  const auto others = tensors_on_cpu(wanted);
  REQUIRE(tensors.size() == others.size());
  for (const auto& [key, tensor] : others) {
    const auto found = tensors.find(key);
    if (found == tensors.end() || !at::allclose(found->second, tensor, 1e-4, 1e-5)) {
      throw std::runtime_error("\"" + key + "\" differs or is missing");
    }
  }
}

template <class Forward>
void train_as_all(Forward forward, torch::optim::Optimizer& optimizer, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    loss_of_batch(forward, /*rank=*/0, step).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
}

// Of one process on the CPU. All ranks have its batches, so that theirs must be the same.
struct OnTheCpu {
  explicit OnTheCpu(int num_steps = 2) : optimizer(net->parameters(), torch::optim::AdamWOptions(0.01)) {
    train_as_all([this](const at::Tensor& x) { return net->forward(x); }, optimizer, 0, num_steps);
  }
  ModelAndOptimizerState state() const { return checkpoint::get_state_dict(*net, optimizer); }
  std::shared_ptr<fsdp::test::BlockNet<std::shared_ptr<fsdp::test::Block>>> net = fsdp::test::plain_net();
  mutable torch::optim::AdamW optimizer;
};

TEST_F(CheckpointDevices, StatesOfAModuleThere) {
  const OnTheCpu wanted(3);
  auto net = fsdp::test::plain_net(), other = fsdp::test::plain_net();
  net->to(device(0));
  other->to(device(1));
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01));
  torch::optim::AdamW again(other->parameters());
  const auto forward = [](const auto& module) {
    return [&](const at::Tensor& x) { return module->forward(x.to(module->in->weight.device())); };
  };
  {
    const InStream in(latest_stream(device(0)));
    train_as_all(forward(net), optimizer, 0, 2);
    const auto kept = checkpoint::get_state_dict(*net, optimizer, {.cpu_offload = true});
    require_close(kept, OnTheCpu(2).state());
    const auto live = checkpoint::get_state_dict(*net, optimizer);
    const InStream in_another(latest_stream(device(1)));
    checkpoint::set_state_dict(*other, again, live);
  }
  EXPECT_EQ(other->in->weight.device(), device(1));
  train_as_all(forward(other), again, 2, 3);
  require_close(checkpoint::get_state_dict(*other, again), wanted.state());
}

// Ranks also meet on the host. While one waits there, another one's collective needs its device, which then goes on by itself
// after a while, as a GPU would.
void go_on_as_one_process(const fsdp::Options& options) {
  const OnTheCpu half(2), wanted(3);
  run_ranks_with_devices(2, [&](int rank, const Group& group, const RankDevices& devices) {
    const c10::DeviceGuard guard(devices.first);
    auto model = blocks_on(devices.first, gathered_in(group, options));
    torch::optim::AdamW optimizer(model->parameters());
    const InStream in(latest_stream(devices.first));
    StateDictOptions whole{.full_state_dict = true, .process_group = group};
    auto from_rank_0 = whole;
    from_rank_0.broadcast_from_rank0 = true;
    checkpoint::set_state_dict(*model, optimizer, rank == 0 ? half.state() : ModelAndOptimizerState(), from_rank_0);
    const auto forward = [&](const at::Tensor& x) { return model(x); };
    train_as_all(forward, optimizer, 2, 3);
    const auto got = checkpoint::get_state_dict(*model, optimizer, whole);
    REQUIRE(got.model["in.weight"].tensor.device() == devices.first);
    require_close(got, wanted.state());
    // Back to what was before, by whole values and by parts, while the step's kernels may not have begun.
    auto parts = checkpoint::get_state_dict(*model, optimizer, {.cpu_offload = true});
    for (auto* const each : {&parts.model, &parts.optimizer}) {
      for (auto& item : *each) {
        if (item.value().is_tensor()) item.value().tensor = item.value().tensor.clone();
      }
    }
    train_as_all(forward, optimizer, 3, 4);
    checkpoint::set_state_dict(*model, optimizer, parts);
    require_close(checkpoint::get_state_dict(*model, optimizer, whole), wanted.state());
    checkpoint::set_state_dict(*model, optimizer, half.state(), whole);
    train_as_all(forward, optimizer, 2, 3);
    whole.cpu_offload = true;
    const auto kept = checkpoint::get_state_dict(*model, optimizer, whole);
    if (rank == 0) {
      REQUIRE(kept.model["in.weight"].tensor.is_cpu());
      require_close(kept, wanted.state());
    }
  });
}

TEST_F(CheckpointRanksOnDevices, StatesOfShards) { go_on_as_one_process({}); }

TEST_F(CheckpointRanksOnDevices, StatesOfShardsOnTheCpu) {
  for (const bool pin_memory : {true, false}) {
    go_on_as_one_process({.offload_policy = fsdp::CPUOffloadPolicy(pin_memory)});
  }
}

// The copies to the device of a forward pass may not have begun when the shards that they read are set.
TEST_F(CheckpointRanksOnDevices, ShardsOnTheCpuAreSetAfterTheyWereRead) {
  const OnTheCpu before(0), after(2);
  const auto x = fsdp::test::batch(0, 0);
  const auto expected = before.net->forward(x).detach(), expected_after = after.net->forward(x).detach();
  const test::TemporaryFolder folder;
  checkpoint::save_sharded(before.state().model, folder / "before");
  run_ranks_with_devices(2, [&](int, const Group& group, const RankDevices& devices) {
    const c10::DeviceGuard guard(devices.first);
    auto model =
        blocks_on(devices.first, gathered_in(group, {.offload_policy = fsdp::CPUOffloadPolicy(/*pin_memory=*/true)}));
    const InStream in(latest_stream(devices.first));
    const at::NoGradGuard no_grad;
    const auto output = model(x);
    checkpoint::set_model_state_dict(*model, after.state().model, {.full_state_dict = true, .process_group = group});
    REQUIRE(at::allclose(output.cpu(), expected, 1e-4, 1e-5));
    const auto output_after = model(x);
    auto shards = checkpoint::get_model_state_dict(*model);
    checkpoint::load_sharded(shards, folder / "before", {.no_dist = true});
    REQUIRE(at::allclose(output_after.cpu(), expected_after, 1e-4, 1e-5));
    REQUIRE(at::allclose(model(x).cpu(), expected, 1e-4, 1e-5));
  });
}

ShardedStateDict some_tensors() {
  ShardedStateDict state;
  state.insert("large", StateValue(at::zeros({200, 200}, device(0))));
  state.insert("small", StateValue(at::zeros({5}, device(1))));
  state.insert("turned", StateValue(at::zeros({3, 4}, device(0)).t()));
  state.insert("host", StateValue(at::zeros({7})));
  return state;
}

// In the current streams.
void fill_all(const ShardedStateDict& state, double value) {
  for (const auto& item : state) item.value().tensor.fill_(value);
}

void expect_all_are(const ShardedStateDict& state, double value) {
  for (const auto& item : state) {
    EXPECT_TRUE(item.value().tensor.cpu().eq(value).all().item<bool>()) << item.key() << ", not " << value;
  }
}

TEST_F(CheckpointDevices, SavesHaveWhatStreamsHaveBeenToldToWrite) {
  const test::TemporaryFolder folder;
  const InStream in(latest_stream(device(0))), in_another(latest_stream(device(1)));
  auto state = some_tensors();
  fill_all(state, 1);
  checkpoint::save_sharded(state, folder / "at-once");
  fill_all(state, 2);
  auto save = checkpoint::async_save(state, folder / "later");
  fill_all(state, 3);
  save.wait();
  checkpoint::load_sharded(state, folder / "at-once");
  expect_all_are(state, 1);
  checkpoint::load_sharded(state, folder / "later");
  expect_all_are(state, 2);
}

TEST_F(CheckpointDevices, MemorySnapshotsHaveWhatStreamsHaveBeenToldToWrite) {
  for (const bool overlap : {false, true}) {
    SCOPED_TRACE(overlap);
    const checkpoint::JobOfOne job;
    const InStream in(latest_stream(device(0))), in_another(latest_stream(device(1)));
    auto state = some_tensors();
    const checkpoint::SnapshotState kept{.get = [&] { return state; }};
    {
      checkpoint::MemorySnapshot snapshot(kept, {.overlap = overlap, .required = true});
      snapshot.resume();
      for (int64_t step = 1; step <= 3; ++step) {
        snapshot.before_step();
        fill_all(state, static_cast<double>(step));
        snapshot.step(step);
      }
    }
    fill_all(state, 0);
    checkpoint::MemorySnapshot snapshot(kept, {.required = true});
    EXPECT_EQ(snapshot.resume().describe(), "step 3 from memory");
    expect_all_are(state, 3);
  }
}

TEST_F(CheckpointDevices, MemorySnapshotsOfAModelAndItsOptimizer) {
  const checkpoint::JobOfOne job;
  const InStream in(latest_stream(device(0)));
  const auto trained = [&](bool resumes) {
    auto net = fsdp::test::plain_net();
    net->to(device(0));
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01));
    checkpoint::MemorySnapshot snapshot(checkpoint::snapshot_state(*net, optimizer), {.required = true});
    const auto begin = static_cast<int>(snapshot.resume().step);
    EXPECT_EQ(begin, resumes ? 2 : 0);
    for (int step = begin; step < (resumes ? 3 : 2); ++step) {
      train_as_all([&](const at::Tensor& x) { return net->forward(x.to(device(0))); }, optimizer, step, step + 1);
      snapshot.step(step + 1);
    }
    return checkpoint::get_state_dict(*net, optimizer, {.cpu_offload = true});
  };
  trained(false);
  require_close(trained(true), OnTheCpu(3).state());
}

}  // namespace
}  // namespace cohort::sim
