// What becomes of ranks that gather parameters when one of them is lost, after exceptions, and what wrong calls are told.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <string>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/mesh/device_mesh.h"
#include "tests/parallel/fsdp/blocks.h"
#include "tests/support/marks.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"
#include "tests/support/rounding.h"

BACKEND_OF_FILE(both)

namespace cohort::fsdp {
namespace {

using cohort::test::are_rounded_alike;
using cohort::test::error_of;
using cohort::test::largest_of;
using cohort::test::run_rank_threads;
using test::batch;
using test::block_loss;
using testing::MatchesRegex;

Options apart(const Group& group) { return {.process_group = group, .one_memory = false}; }

struct CallingGather final : AllGather {
  explicit CallingGather(std::function<void()> before) : before(std::move(before)) {}
  WorkPtr operator()(const at::Tensor& output, const at::Tensor& input, const Group& group, bool async_op) override {
    before();
    return AllGather::operator()(output, input, group, async_op);
  }
  std::function<void()> before;
};
struct CallingReduce final : ReduceScatter {
  explicit CallingReduce(std::function<void()> before) : before(std::move(before)) {}
  WorkPtr operator()(const at::Tensor& output, const at::Tensor& input, const Group& group, ReduceOp op,
                     bool async_op) override {
    before();
    return ReduceScatter::operator()(output, input, group, op, async_op);
  }
  std::function<void()> before;
};

// Where rank 1 is killed: argument 0. In "forward" and "reduction" it is about to call a collective of block 1.
COHORT_WORKER(gathers_until_a_rank_is_killed) {
  init_process_group({.backend = cohort::test::backend_of_tests()});
  const auto& place = cohort::test::worker_arguments().at(0);
  int step = 0;
  bool is_in_forward = false;
  const auto die_at = [&](const std::string& here) {
    if (here == place && step == 3 && get_rank() == 1) raise(SIGKILL);
  };
  auto model = fully_shard(test::net_of_sharded_blocks(apart({})), apart({}));
  auto& block = model->module().blocks[1];
  block->set_custom_all_gather(std::make_shared<CallingGather>([&] {
    if (is_in_forward) die_at("forward");
  }));
  block->set_custom_reduce_scatter(std::make_shared<CallingReduce>([&] { die_at("reduction"); }));
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  cohort::test::print_error([&] {
    for (;; ++step) {
      optimizer.zero_grad();
      is_in_forward = true;
      auto output = model(batch(get_rank(), step));
      is_in_forward = false;
      output.register_hook([&](const at::Tensor&) { die_at("backward"); });
      block_loss(output, get_rank(), step).backward();
      die_at("step");
      optimizer.step();
    }
  });
}

// Of rank 1, which another rank waits for in `operation`.
std::string text_of_the_lost(int rank, const std::string& operation) {
  const auto begin = "\\[cohort\\] " + operation + " #[0-9]+ on group \"default_pg\" failed\n  rank " +
                     std::to_string(rank) + " of 3 on [^ ]+, backend " + cohort::test::backend_of_tests() +
                     ", [0-9.]+ [KMi]*B float32\n  caused by: " + cohort::test::process_regex(1);
  const std::string hint = "  hint: look at the output of rank 1 for the reason";
  if (cohort::test::backend_of_tests() == "shm") {
    return begin + " (was killed by signal 9 \\(SIGKILL\\)|has ended)\n" + hint + "\n";
  }
  return begin + " is gone\n(  caused by: [^\n]*\n)?" + hint +
         "(; if it ended well, the ranks do not take the same steps; [^\n]*)?\n";
}

struct Loss {
  const char* place;
  const char* operation;  // in which the others learn of it
};

class GatheredRankKilled : public testing::TestWithParam<Loss> {};

TEST_P(GatheredRankKilled, OthersNameItAndTheCollective) {
  const auto results =
      cohort::test::run_workers("gathers_until_a_rank_is_killed", {.world_size = 3, .arguments = {GetParam().place}});
  EXPECT_EQ(results[1].exit_code, -SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_FALSE(results[rank].timed_out);
    EXPECT_EQ(results[rank].exit_code, 0) << results[rank].errors;
    EXPECT_THAT(results[rank].output, MatchesRegex(text_of_the_lost(rank, GetParam().operation)));
  }
}

constexpr const char* kGather = "all_gather_single";
constexpr const char* kEither = "(all_gather_single|reduce_scatter_single)";

INSTANTIATE_TEST_SUITE_P(Places, GatheredRankKilled,
                         testing::Values(Loss{"forward", kGather}, Loss{"backward", kGather},
                                         Loss{"reduction", kEither}, Loss{"step", kGather}),
                         [](const auto& info) { return std::string(info.param.place); });

// A block that throws when it is told to.
struct Fragile : torch::nn::Module {
  Fragile() { layer = register_module("layer", torch::nn::Linear(6, 6)); }
  at::Tensor forward(at::Tensor x) {
    x = at::tanh(layer(x));
    if (throws_in_forward) throw std::runtime_error("forward of a block");
    if (throws_in_backward) {
      x.register_hook([](const at::Tensor&) { throw std::runtime_error("backward of a block"); });
    }
    return x;
  }
  torch::nn::Linear layer{nullptr};
  bool throws_in_forward = false, throws_in_backward = false;
};

std::vector<std::shared_ptr<Fragile>> fragile_blocks() {
  std::vector<std::shared_ptr<Fragile>> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(std::make_shared<Fragile>());
    test::initialize(*blocks.back(), 10 * i);
  }
  return blocks;
}

template <class Block>
std::shared_ptr<test::BlockNet<Block>> fragile_net(std::vector<Block> blocks) {
  auto net = std::make_shared<test::BlockNet<Block>>(std::move(blocks));
  test::initialize(*net->in, 100);
  test::initialize(*net->out, 200);
  return net;
}

std::string thrown_by(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

std::vector<at::Tensor> trained_fragile_net(int world_size, int num_steps) {
  auto net = fragile_net(fragile_blocks());
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < num_steps; ++step) {
    optimizer.zero_grad();
    std::vector<at::Tensor> losses;
    for (int rank = 0; rank < world_size; ++rank) {
      losses.push_back(block_loss(net->forward(batch(rank, step)), rank, step));
    }
    at::stack(losses).mean().backward();
    optimizer.step();
  }
  return net->parameters();
}

// All ranks throw at the same place, in the middle of a pass whose collectives are on their way; then they train on.
TEST(GatheredExceptions, TrainingGoesOnAfterwards) {
  const auto expected = trained_fragile_net(3, 4);
  run_rank_threads(3, [&](int rank, const Group& group) {
    const auto inner = fragile_blocks();
    std::vector<FullySharded<Fragile>> blocks;
    for (const auto& block : inner) blocks.push_back(fully_shard(block, apart(group)));
    auto model = fully_shard(fragile_net(blocks), apart(group));
    model->set_modules_to_forward_prefetch({blocks[0].get(), blocks[1].get(), blocks[2].get()});
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    const auto train_on = [&](int step) {
      optimizer.zero_grad();
      block_loss(model(batch(rank, step)), rank, step).backward();
      optimizer.step();
    };
    train_on(0);
    for (const bool in_backward : {false, true, true, false}) {
      auto& fault = in_backward ? inner[1]->throws_in_backward : inner[1]->throws_in_forward;
      fault = true;
      EXPECT_EQ(thrown_by([&] { train_on(7); }), in_backward ? "backward of a block" : "forward of a block");
      fault = false;
    }
    train_on(1);
    inner[2]->throws_in_backward = true;
    EXPECT_EQ(thrown_by([&] { train_on(7); }), "backward of a block");
    inner[2]->throws_in_backward = false;
    train_on(2);
    train_on(3);
    std::vector<at::Tensor> whole;
    for (auto& block : blocks) block->unshard();
    model->unshard();
    for (const auto& parameter : model->module().parameters()) whole.push_back(parameter.detach().clone());
    EXPECT_LT(test::furthest(whole, expected), test::rounding_of_steps(4));
    barrier({.group = group});
  });
}

TEST(GatheredErrors, ReadOutsideOfAPassMessage) {
  if constexpr (!requires(c10::StorageImpl & storage) { storage.clear_data_ptr_access_error_msg_(); }) {
    GTEST_SKIP() << "LibTorch before 2.12 cannot take such an error back";
  }
  run_rank_threads(2, [](int rank, const Group& group) {
    auto model = fully_shard(test::net_of_sharded_blocks(apart(group)), apart(group));
    const std::string message =
        "[cohort] Parameter 'up.bias' is sharded: its full value is there only while the forward or backward pass of "
        "its fully_shard module runs. To read it elsewhere, call unshard() of that module before, and reshard() "
        "afterwards. Build optimizers on parameters() of the wrapper, which returns this rank's shards. Call forward "
        "on the wrapper, not on the module inside.";
    auto& inner = model->module().blocks[0]->module();
    EXPECT_EQ(error_of([&] { (void)inner.up->bias.sum(); }), message);
    block_loss(model(batch(rank, 0)), rank, 0).backward();
    EXPECT_EQ(error_of([&] { (void)inner.up->bias.clone(); }), message);
    EXPECT_NE(error_of([&] { (void)inner.forward(at::ones({2, 6})); }), "(no error)");
  });
}

TEST(GatheredErrors, MovedParameterMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto model = fully_shard(test::net_of_sharded_blocks(apart(group)), apart(group));
    auto& weight = model->module().blocks[1]->module().down->weight;
    weight.set_data(at::zeros({6, 10}));
    EXPECT_EQ(error_of([&] { (void)model(batch(rank, 0)); }),
              "[cohort] Parameter 'down.weight' is no longer where fully_shard has put it: to(), set_data() or a new "
              "tensor in "
              "its place has moved it. Convert a module before fully_shard, and write to its parameters with "
              "write().");
  });
}

std::string error_of_options(const Group& group, const std::function<void(Options&)>& change) {
  auto options = apart(group);
  change(options);
  return error_of([&] { fully_shard(torch::nn::Linear(6, 5), options); });
}

TEST(GatheredErrors, PlacementMessages) {
  run_rank_threads(4, [](int, const Group& group) {
    const auto with_dim = [&](int64_t dim) {
      return error_of_options(group, [dim](Options& options) {
        options.shard_placement_fn = [dim](const at::Tensor& parameter) -> std::optional<Shard> {
          if (parameter.dim() < 2) return std::nullopt;
          return Shard{dim};
        };
      });
    };
    EXPECT_EQ(with_dim(1), "FSDP does not support uneven sharding on dim 1: [5, 6] (world size: 4)");
    EXPECT_EQ(with_dim(-1), "FSDP does not support uneven sharding on dim 1: [5, 6] (world size: 4)");
    EXPECT_EQ(with_dim(2),
              "[cohort] shard_placement_fn returned Shard(2) for parameter 'weight', which has 2 dimensions");
    EXPECT_EQ(with_dim(-3),
              "[cohort] shard_placement_fn returned Shard(-3) for parameter 'weight', which has 2 dimensions");
    EXPECT_EQ(with_dim(-2), "(no error)");
  });
}

TEST(GatheredErrors, ReshardAfterForwardMessage) {
  run_rank_threads(4, [](int, const Group& group) {
    for (const int count : {3, 0, 8}) {
      EXPECT_EQ(error_of_options(group, [&](Options& options) { options.reshard_after_forward = count; }),
                "If passing reshard_after_forward as an int, it should be a factor of 4, not " + std::to_string(count));
    }
  });
}

COHORT_WORKER(shards_over_wrong_meshes) {
  init_process_group({.backend = cohort::test::backend_of_tests()});
  const auto line = init_device_mesh("cpu", {4}, {"dp"});
  const auto square = init_device_mesh("cpu", {2, 2});
  const auto cube = init_device_mesh("cpu", {1, 2, 2}, {"pp", "dp", "tp"});
  const auto with_mesh = [&](const DeviceMesh& mesh, const Group& group) {
    return error_of_options(group, [&](Options& options) { options.mesh = mesh; });
  };
  REQUIRE_EQUAL(with_mesh(line, {}), "(no error)");
  REQUIRE_EQUAL(with_mesh(cube, {}), "fully_shard expects a 1D or 2D DeviceMesh but got " + cube.to_string());
  REQUIRE_EQUAL(with_mesh(square, {}), "Please init the 2D mesh for HSDP with axis_names specified");
  REQUIRE_EQUAL(with_mesh(line, default_group()), "[cohort] fully_shard takes a mesh or a process group, not both");
  destroy_process_group();
}

TEST(GatheredErrors, MeshMessages) {
  cohort::test::run_workers("shards_over_wrong_meshes", {.world_size = 4}).expect_success();
}

// Before the first forward pass, when nobody knows the root.
TEST(GatheredErrors, SwitchesOfTheRootBeforeItsFirstPass) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto model = fully_shard(test::net_of_sharded_blocks(apart(group)), apart(group));
    model->reset_iter_state();
    model->set_is_last_backward(false);
    const auto num_reduced = [&] {
      const auto shards = model->parameters();
      return std::count_if(shards.begin(), shards.end(), [](const auto& shard) { return shard.grad().defined(); });
    };
    block_loss(model(batch(rank, 0)), rank, 0).backward();
    EXPECT_LT(num_reduced(), 13);  // the last one is on its way
    model->set_is_last_backward(true);
    block_loss(model(batch(rank, 0)), rank, 0).backward();
    EXPECT_EQ(num_reduced(), 13);
    auto net = test::plain_net();
    std::vector<at::Tensor> losses;
    for (const int other : {0, 1}) losses.push_back(block_loss(net->forward(batch(other, 0)), other, 0));
    at::stack(losses).sum().backward();  // the mean of two ranks, twice
    const auto shards = model->parameters();
    const auto whole = net->parameters();
    for (size_t i = 0; i < shards.size(); ++i) {
      const auto& expected = whole[i].grad();
      EXPECT_TRUE(are_rounded_alike(shards[i].grad(), expected.chunk(2).at(static_cast<size_t>(rank)), test::kBlockSums,
                                    largest_of(expected)))
          << i;
    }
  });
}

}  // namespace
}  // namespace cohort::fsdp
