#include "cohort/train/logging/model_summary.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "tests/support/require.h"

namespace cohort::train {
namespace {

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    register_module("blocks", blocks);
    for (int i = 0; i < 2; ++i) blocks->push_back(torch::nn::Linear(32, 32));
    register_module("norm", norm);
    register_module("frozen", frozen);
    frozen->weight.requires_grad_(false);
    frozen->bias.requires_grad_(false);
    register_parameter("tied", blocks[0]->as<torch::nn::LinearImpl>()->weight);
  }
  torch::nn::ModuleList blocks;
  torch::nn::BatchNorm1d norm{32};
  torch::nn::Linear frozen{32, 10};
};

constexpr int64_t kLinear = 4 * (32 * 32 + 32), kNorm = 4 * 64, kFrozen = 4 * (32 * 10 + 10);

TEST(ModelSummary, ListsModules) {
  torch::nn::Sequential model(torch::nn::Linear(784, 128), torch::nn::Linear(128, 10));
  EXPECT_EQ(model_summary(*model, {.world_size = 2, .strategy = "ddp"}),
            "module   type        parameters       size  trainable\n"
            "-------  ----------  ----------  ---------  ---------\n"
            "(model)  Sequential     101,770  397.5 KiB        yes\n"
            "  0      Linear         100,480  392.5 KiB        yes\n"
            "  1      Linear           1,290    5.0 KiB        yes\n"
            "101,770 parameters (397.5 KiB), 101,770 of them trainable; buffers 0 B\n"
            "a rank will hold about 1.9 MiB and activations (ddp, 2 ranks): parameters 397.5 KiB, gradients 397.5 KiB, "
            "optimizer "
            "795.1 KiB, buffers 0 B, ddp 397.5 KiB\n");
  const std::string flat = model_summary(*model, {.max_depth = 0, .optimizer_states = 0});
  EXPECT_EQ(flat,
            "module   type        parameters       size  trainable\n"
            "-------  ----------  ----------  ---------  ---------\n"
            "(model)  Sequential     101,770  397.5 KiB        yes\n"
            "101,770 parameters (397.5 KiB), 101,770 of them trainable; buffers 0 B\n"
            "a rank will hold about 795.1 KiB and activations (1 rank): parameters 397.5 KiB, gradients 397.5 KiB, "
            "optimizer 0 B, "
            "buffers 0 B\n");
}

TEST(ModelSummary, KnowsTheTrainersWords) {
  torch::nn::Linear model(2, 2);
  const auto text = [&](const char* strategy, int64_t world_size) {
    return model_summary(*model, {.world_size = world_size, .strategy = strategy});
  };
  EXPECT_EQ(text("auto", 2), text("ddp", 2));
  EXPECT_EQ(text("auto", 1), text("none", 1));
  EXPECT_EQ(text("single", 1), text("none", 1));
}

TEST(ModelSummary, CountsWhatARankHolds) {
  const TiedImpl model;
  const int64_t trainable = 2 * kLinear + kNorm, buffers = 4 * 64 + 8;
  const MemoryEstimate alone = estimate_memory(model, {});
  EXPECT_EQ(alone.gradients, trainable);
  EXPECT_EQ(alone.optimizer, 2 * trainable);
  EXPECT_EQ(alone.buffers, buffers);
  EXPECT_EQ(alone.strategy, 0);
  EXPECT_EQ(alone.total(), alone.parameters + 3 * trainable + buffers);
  const MemoryEstimate ddp = estimate_memory(model, {.world_size = 4, .strategy = "ddp"});
  EXPECT_EQ(ddp.strategy, trainable);
  EXPECT_EQ(ddp.parameters, alone.parameters);
  const MemoryEstimate fsdp = estimate_memory(model, {.world_size = 4, .strategy = "fsdp", .optimizer_states = 1});
  EXPECT_EQ(fsdp.parameters, (alone.parameters + 3) / 4);
  EXPECT_EQ(fsdp.gradients, trainable / 4);
  EXPECT_EQ(fsdp.optimizer, trainable / 4);
  EXPECT_GE(fsdp.strategy, kLinear);  // a block, not the whole list of them
  EXPECT_LT(fsdp.strategy, 2 * kLinear);
}

TEST(ModelSummary, RefusesWhatCannotBe) {
  torch::nn::Linear model(2, 2);
  EXPECT_EQ(test::error_of([&] { estimate_memory(*model, {.strategy = "fdsp"}); }),
            "[cohort] model_summary: there is no strategy \"fdsp\" (did you mean \"fsdp\"?); it is one of \"none\", "
            "\"single\", "
            "\"auto\", \"ddp\", \"data_parallel\", \"fsdp\"");
  EXPECT_EQ(test::error_of([&] { estimate_memory(*model, {.world_size = 0}); }),
            "[cohort] model_summary: world_size is at least 1, but got 0");
}

}  // namespace
}  // namespace cohort::train
