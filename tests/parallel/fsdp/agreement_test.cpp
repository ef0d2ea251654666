// Errors of ranks that call fully_shard with different parameters or options, and of those whose neighbors cannot go on.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <string>

#include "cohort/mesh/device_mesh.h"
#include "tests/parallel/fsdp/gathered_blocks.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::fsdp {
namespace {

using cohort::test::error_of;
using cohort::test::run_rank_threads;
using test::in_group;

using Change = std::function<void(int rank, Options&)>;

// What each of three ranks is told whose options `change` makes unlike.
void expect_all_told(const Change& change, const std::string& text) {
  run_rank_threads(3, [&](int rank, const Group& group) {
    auto options = in_group(group);
    change(rank, options);
    EXPECT_EQ(error_of([&] { fully_shard(torch::nn::Linear(3, 2), options); }), text);
  });
}

TEST(GatheredAgreement, OptionsMessages) {
  const auto differ = [](const std::string& what) {
    return "[cohort] fully_shard: nothing was sharded, as the ranks differ: " + what;
  };
  expect_all_told(
      [](int rank, Options& options) {
        if (rank == 1) options.mp_policy.param_dtype = at::kBFloat16;
      },
      differ("param_dtype is not set on ranks 0 and 2, but BFloat16 on rank 1"));
  expect_all_told(
      [](int rank, Options& options) {
        if (rank > 0) options.mp_policy.reduce_dtype = rank == 1 ? at::kHalf : at::kBFloat16;
      },
      differ("reduce_dtype is not set on rank 0, but Half on rank 1, but BFloat16 on rank 2"));
  expect_all_told(
      [](int rank, Options& options) { options.mp_policy.output_dtype = rank == 2 ? at::kDouble : at::kFloat; },
      differ("output_dtype is Float on ranks 0 and 1, but Double on rank 2"));
  expect_all_told(
      [](int rank, Options& options) {
        if (rank < 2) options.reshard_after_forward = true;
        if (rank == 2) options.reshard_after_forward = 3;
      },
      differ("reshard_after_forward is true on ranks 0 and 1, but 3 on rank 2"));
  expect_all_told([](int rank, Options& options) { options.one_memory = rank == 0; },
                  differ("one_memory is true on rank 0, but false on ranks 1 and 2"));
  expect_all_told(
      [](int rank, Options& options) {
        options.shard_placement_fn = [rank](const at::Tensor& parameter) -> std::optional<Shard> {
          if (rank == 2 && parameter.dim() == 2) return Shard(1);
          return std::nullopt;
        };
      },
      differ(
          "parameter 0 is weight Float [2, 3] on ranks 0 and 1, but weight Float [2, 3] sharded along dimension 1 on "
          "rank 2"));
}

TEST(GatheredAgreement, ParametersMessages) {
  const auto differ = [](const std::string& what) {
    return "[cohort] fully_shard: nothing was sharded, as the ranks differ: " + what;
  };
  const auto error_with = [](const Group& group, const std::function<torch::nn::Linear()>& make) {
    return error_of([&] { fully_shard(make(), in_group(group)); });
  };
  run_rank_threads(3, [&](int rank, const Group& group) {
    EXPECT_EQ(error_with(group,
                         [&] {
                           torch::nn::Linear net(3, 2);
                           if (rank == 2) net->to(at::kDouble);
                           return net;
                         }),
              differ("parameter 0 is weight Float [2, 3] on ranks 0 and 1, but weight Double [2, 3] on rank 2"));
    EXPECT_EQ(error_with(group,
                         [&] {
                           torch::nn::Linear net(3, 2);
                           net->bias.set_requires_grad(rank != 1);
                           return net;
                         }),
              differ("parameter 1 is bias Float [2] on ranks 0 and 2, but bias Float [2] frozen on rank 1"));
    EXPECT_EQ(error_with(group, [&] { return torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(rank == 0)); }),
              differ("parameter 1 is bias Float [2] on rank 0, but nothing on ranks 1 and 2"));
    EXPECT_EQ(error_with(group, [&] { return torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(rank == 2)); }),
              differ("parameter 1 is nothing on ranks 0 and 1, but bias Float [2] on rank 2"));
  });
}

// One rank alone has something that it cannot shard: it says what, and the others are told.
TEST(GatheredAgreement, ARankThatCannotGoOnMessages) {
  struct Scalar : torch::nn::Module {
    explicit Scalar(bool is_scalar) { register_parameter("scale", is_scalar ? at::ones({}) : at::ones({1})); }
    at::Tensor forward(at::Tensor x) { return x; }
  };
  run_rank_threads(3, [&](int rank, const Group& group) {
    const std::string text =
        "fully_shard doesn't support scalar parameters. Change scale to a 1D tensor with numel equal to 1.";
    const auto make = [&] { fully_shard(std::make_shared<Scalar>(rank == 1), in_group(group)); };
    EXPECT_EQ(error_of(make), rank == 1 ? text : "[cohort] fully_shard: nothing was sharded\n  rank 1: " + text);
    bool is_value_error = false;
    try {
      make();
    } catch (const c10::ValueError&) {
      is_value_error = true;
    } catch (const c10::Error&) {
    }
    EXPECT_EQ(is_value_error, rank == 1);
    auto options = in_group(group);
    options.shard_placement_fn = [rank](const at::Tensor&) -> std::optional<Shard> {
      TORCH_CHECK(rank != 2, "no placement for \xff");
      return std::nullopt;
    };
    EXPECT_EQ(error_of([&] { fully_shard(torch::nn::Linear(3, 2), options); }),
              rank == 2 ? "no placement for \xff"
                        : "[cohort] fully_shard: nothing was sharded\n  rank 2: no placement for \xff");
    EXPECT_EQ(error_of([&] { fully_shard(torch::nn::Linear(3, 2), in_group(group)); }), "(no error)");
  });
}

// The copies of a rank that cannot go on are told by way of the ranks that share its parameters.
COHORT_WORKER(shards_copies_wrongly) {
  init_process_group({.backend = cohort::test::backend_of_tests()});
  const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp_replicate", "dp_shard"});
  const int rank = get_rank();
  const auto error_with = [&](const at::Tensor& tensor, Options options) {
    options.mesh = mesh;
    return error_of([&] { Sharding({{"weight", tensor}}, options); });
  };
  const std::string text =
      "fully_shard doesn't support scalar parameters. Change weight to a 1D tensor with numel equal to 1.";
  REQUIRE_EQUAL(error_with(rank == 3 ? at::ones({}) : at::ones({1}), {.one_memory = false}),
                rank == 3 ? text : "[cohort] fully_shard: nothing was sharded\n  rank 3: " + text);
  // Copies that differ, not the ranks that share the parameters.
  const auto copy = error_with(at::ones({rank < 2 ? 3 : 4}), {.one_memory = false});
  REQUIRE_EQUAL(copy,
                "[cohort] fully_shard: nothing was sharded, as the ranks differ: parameter 0 is weight Float [3] "
                "frozen on rank " +
                    std::to_string(rank % 2) + ", but weight Float [4] frozen on rank " + std::to_string(rank % 2 + 2));
  destroy_process_group();
}

TEST(GatheredAgreement, CopiesMessages) {
  cohort::test::run_workers("shards_copies_wrongly", {.world_size = 4}).expect_success();
}

}  // namespace
}  // namespace cohort::fsdp
