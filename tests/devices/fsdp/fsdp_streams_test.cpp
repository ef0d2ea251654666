// fully_shard in programs with streams of their own. Parameters are gathered in one stream, computed with in another one, and
// their gradients reduced in a third: none may read what is not there yet, nor get memory that another one still reads.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "tests/devices/fsdp/device_blocks.h"
#include "tests/devices/in_stream.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

class FsdpStreams : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    run_late_work_on_demand_only();
  }
};

c10::Stream late_stream(c10::Device device) {
  const auto stream = new_stream(device.index());
  queue_of(stream).make_late();
  return stream;
}

c10::Stream prompt_stream(c10::Device device) {
  const auto stream = new_stream(device.index());
  queue_of(stream).make_prompt();
  return stream;
}

// Other ranks' devices may wait for this rank.
void wait_for_own(c10::Device device) { c10::impl::VirtualGuardImpl(type()).synchronizeDevice(device.index()); }

// All in a stream that is later than those of the library, or earlier.
void expect_as_one_process_in(c10::Stream (*make_stream)(c10::Device), int world_size, const BlockTraining& way) {
  const auto expected = train_in_one_process(world_size, way);
  run_ranks_with_devices(world_size, [&](int rank, const Group& group, const RankDevices& devices) {
    const InStream in(make_stream(devices.first));
    REQUIRE(are_close(train_on_rank(rank, group, devices.first, way), expected));
  });
}

void expect_as_one_process_in_streams(int world_size, const BlockTraining& way) {
  expect_as_one_process_in(late_stream, world_size, way);
  expect_as_one_process_in(prompt_stream, world_size, way);
}

void fetch_more_at_once(BlockModel& model) {
  auto& blocks = model->module().blocks;
  model->set_modules_to_forward_prefetch({blocks[0].get(), blocks[1].get(), blocks[2].get()});
  blocks[2]->set_modules_to_backward_prefetch({blocks[1].get(), blocks[0].get()});
}

TEST_F(FsdpStreams, AllInASideStream) {
  expect_as_one_process_in_streams(1, {});
  expect_as_one_process_in_streams(2, {});
  expect_as_one_process_in_streams(2, {.options = {.reshard_after_forward = true}, .set_up = fetch_more_at_once});
}

TEST_F(FsdpStreams, GradientsOfSeveralPasses) {
  expect_as_one_process_in_streams(2, {.num_passes = 3});
  expect_as_one_process_in_streams(2, {.num_passes = 3, .syncs_last = true});
}

TEST_F(FsdpStreams, TwoReductionsOnTheirWay) {
  expect_as_one_process_in_streams(
      2, {.set_up = [](BlockModel& model) { model->set_reduce_scatter_max_input_buffers(2); }});
}

TEST_F(FsdpStreams, ShardsOnTheCpu) {
  expect_as_one_process_in_streams(2, {.options = {.offload_policy = fsdp::CPUOffloadPolicy()}, .num_passes = 2});
}

// Sums of half precision are divided before and after; what is cast has memory of its own in each stream.
TEST_F(FsdpStreams, MixedPrecision) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    fsdp::Options options;
    options.mp_policy = {.param_dtype = dtype, .reduce_dtype = dtype};
    const BlockTraining way{.options = options, .num_passes = 2};
    std::vector<Weights> expected(2);
    run_ranks_with_devices(2, [&](int rank, const Group& group, const RankDevices&) {
      expected[rank] = train_on_rank(rank, group, at::kCPU, way);
    });
    for (const auto make_stream : {late_stream, prompt_stream}) {
      run_ranks_with_devices(2, [&](int rank, const Group& group, const RankDevices& devices) {
        const InStream in(make_stream(devices.first));
        REQUIRE(are_equal_in_16_bits(train_on_rank(rank, group, devices.first, way), expected[rank]));
      });
    }
  }
}

// The step is in a late stream, for which nobody but the next gathers waits.
TEST_F(FsdpStreams, OptimizerInAStreamOfItsOwn) {
  const auto expected = train_in_one_process(2, {});
  run_ranks_with_devices(2, [&](int rank, const Group& group, const RankDevices& devices) {
    const auto stream = late_stream(devices.first);
    const auto step = [&](BlockModel& model, torch::optim::Optimizer& optimizer) {
      c10::Event begin(type()), end(type());
      begin.record(current_stream(devices.first.index()));
      begin.block(stream);
      {
        const c10::StreamGuard guard(stream);
        optimizer.step();
        // Freed at once, while the step has not begun.
        for (const auto& shard : model->parameters()) {
          if (shard.grad().defined()) shard.grad().record_stream(stream);
        }
        optimizer.zero_grad();
      }
      end.record(stream);
      model->set_post_optim_event(std::move(end));
    };
    auto model = blocks_on(devices.first, gathered_in(group));
    train_steps(model, rank, {.step = step});
    wait_for_own(devices.first);
    REQUIRE(are_close(whole_on_cpu(model), expected));
  });
}

// Forward in one stream, backward called in another one, which the optimizer is in, too.
TEST_F(FsdpStreams, BackwardIsCalledInAnotherStream) {
  const auto expected = train_in_one_process(2, {});
  run_ranks_with_devices(2, [&](int rank, const Group& group, const RankDevices& devices) {
    for (const bool backward_is_late : {true, false}) {
      auto model = blocks_on(devices.first, gathered_in(group));
      torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
      const auto of_forward = backward_is_late ? prompt_stream(devices.first) : late_stream(devices.first);
      const auto of_backward = backward_is_late ? late_stream(devices.first) : prompt_stream(devices.first);
      for (int64_t step = 0; step < kNumSteps; ++step) {
        at::Tensor loss;
        {
          const InStream in(of_forward);
          loss = loss_of_batch([&](const at::Tensor& x) { return model(x); }, rank, 10 * step);
        }
        const InStream in(of_backward);
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
      }
      REQUIRE(are_close(whole_on_cpu(model), expected));
    }
  });
}

TEST_F(FsdpStreams, HookOfReductionsInItsStream) {
  const auto expected = train_in_one_process(2, {});
  run_ranks_with_devices(2, [&](int rank, const Group& group, const RankDevices& devices) {
    for (const auto make_stream : {late_stream, prompt_stream}) {
      const auto stream = make_stream(devices.first);
      const auto hook = [&](const at::Tensor& sum) {
        REQUIRE(current_stream(devices.first.index()) == stream);
        const auto doubled = sum * 2;
        sum.copy_(doubled);
      };
      const auto set_up = [&](BlockModel& model) {
        model->set_all_reduce_hook(hook, stream);
        model->set_gradient_divide_factor(4);
        for (auto& block : model->module().blocks) {
          block->set_all_reduce_hook(hook, stream);
          block->set_gradient_divide_factor(4);
        }
      };
      REQUIRE(are_close(train_on_rank(rank, group, devices.first, {.set_up = set_up}), expected));
    }
  });
}

// Notes the last gather, and what had been called for by then.
struct WatchedGather final : fsdp::AllGather {
  explicit WatchedGather(WorkPtr* last) : last(last) {}
  WorkPtr operator()(const at::Tensor& output, const at::Tensor& input, const Group& group, bool async_op) override {
    return *last = AllGather::operator()(output, input, group, async_op);
  }
  WorkPtr* last;
};
struct WatchedReduce final : fsdp::ReduceScatter {
  explicit WatchedReduce(std::function<void()> before) : before(std::move(before)) {}
  WorkPtr operator()(const at::Tensor& output, const at::Tensor& input, const Group& group, ReduceOp op,
                     bool async_op) override {
    before();
    return ReduceScatter::operator()(output, input, group, op, async_op);
  }
  std::function<void()> before;
};

// Asks before the gradients are copied, for which reductions wait.
struct AskingReduce final : fsdp::ReduceScatter {
  explicit AskingReduce(std::function<void()> before) : before(std::move(before)) {}
  at::Tensor allocate(int64_t num_elements, const at::TensorOptions& options) override {
    if (is_input) before();
    is_input = !is_input;
    return ReduceScatter::allocate(num_elements, options);
  }
  std::function<void()> before;
  bool is_input = true;  // else the output
};

// Backward of a block has been called, and none of it has run, when the parameters of the next one are there.
TEST_F(FsdpStreams, GathersRunWhileABlockComputes) {
  COHORT_SKIP_ON_REAL_DEVICES("it asks what has run");
  run_ranks_with_devices(2, [](int rank, const Group& group, const RankDevices& devices) {
    auto model = blocks_on(devices.first, gathered_in(group));
    auto& blocks = model->module().blocks;
    WorkPtr last;
    int num_overlaps = 0;
    const auto compute = late_stream(devices.first);
    const auto check = [&] {
      const auto backward = end_of(queue_of(compute));
      while (!last->isCompleted()) std::this_thread::yield();
      if (!queue_of(compute).is_done(backward.number)) ++num_overlaps;
    };
    blocks[0]->set_custom_all_gather(std::make_shared<WatchedGather>(&last));
    blocks[1]->set_custom_all_gather(std::make_shared<WatchedGather>(&last));
    blocks[1]->set_custom_reduce_scatter(std::make_shared<AskingReduce>(check));
    blocks[2]->set_custom_reduce_scatter(std::make_shared<AskingReduce>(check));
    const InStream in(compute);
    const auto loss = loss_of_batch([&](const at::Tensor& x) { return model(x); }, rank, 0);
    last.reset();
    loss.backward();
    meet(group);
    REQUIRE(num_overlaps == 2);
  });
}

// The same in forward, where the program says what comes next.
TEST_F(FsdpStreams, GathersOfForwardRunWhileABlockComputes) {
  COHORT_SKIP_ON_REAL_DEVICES("it asks what has run");
  run_ranks_with_devices(2, [](int rank, const Group& group, const RankDevices& devices) {
    auto model = blocks_on(devices.first, gathered_in(group));
    auto& blocks = model->module().blocks;
    WorkPtr last;
    blocks[1]->set_custom_all_gather(std::make_shared<WatchedGather>(&last));
    blocks[0]->set_modules_to_forward_prefetch({blocks[1].get()});
    const auto compute = late_stream(devices.first);
    const InStream in(compute);
    const at::NoGradGuard no_grad;
    (void)model(fsdp::test::batch(rank, 0));
    REQUIRE(last);
    while (!last->isCompleted()) std::this_thread::yield();
    const bool is_done = queue_of(compute).is_done(end_of(queue_of(compute)).number);
    meet(group);
    REQUIRE(!is_done);
  });
}

// Afterwards the program zeroes in place what a reduction may still be writing.
TEST_F(FsdpStreams, ExceptionsWhileReductionsAreOnTheirWay) {
  const auto expected = train_in_one_process(2, {});
  run_ranks_with_devices(2, [&](int rank, const Group& group, const RankDevices& devices) {
    for (const auto make_stream : {late_stream, prompt_stream}) {
      const InStream in(make_stream(devices.first));
      auto model = blocks_on(devices.first, gathered_in(group));
      auto& block = model->module().blocks[0];
      bool throws = false;
      block->set_custom_reduce_scatter(std::make_shared<WatchedReduce>([&] {
        if (throws) throw std::runtime_error("in the middle of backward");
      }));
      const auto forward = [&](const at::Tensor& x) { return model(x); };
      const auto begin_step = [&](BlockModel&) {
        throws = true;
        const auto loss = loss_of_batch(forward, rank, 77);
        EXPECT_THROW(loss.backward(), std::runtime_error);
        throws = false;
        (void)loss_of_batch(forward, rank, 78);
        model->zero_grad(/*set_to_none=*/false);
      };
      train_steps(model, rank, {.begin_step = begin_step});
      REQUIRE(are_close(whole_on_cpu(model), expected));
    }
  });
}

}  // namespace
}  // namespace cohort::sim
