// Wrapped modules as members of a user's module: each holder takes the result of register_module.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <type_traits>

#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/activation/activation_checkpoint.h"
#include "cohort/parallel/data_parallel/data_parallel.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/norm/convert_sync_batch_norm.h"
#include "cohort/parallel/norm/sync_batch_norm.h"
#include "cohort/parallel/pipeline/stage_list.h"
#include "cohort/parallel/tensor/parallel_layers.h"
#include "cohort/parallel/tensor/parallelize_module.h"
#include "cohort/parallel/tensor/with_layouts.h"
#include "tests/support/rank_threads.h"

namespace cohort::parallel {
namespace {

using torch::nn::BatchNorm1d;
using torch::nn::Linear;
using torch::nn::LinearImpl;

template <class Holder>
struct Parent : torch::nn::Module {
  explicit Parent(Holder made) { block = this->register_module("block", made); }
  Holder block{nullptr};
};

// Returns the parent, whose entries below "block." are those of `block`.
template <class Holder>
std::shared_ptr<Parent<Holder>> expect_member(const Holder& block) {
  auto parent = std::make_shared<Parent<Holder>>(block);
  EXPECT_EQ(parent->block.ptr(), block.ptr());
  EXPECT_EQ(parent->named_children()["block"], std::static_pointer_cast<torch::nn::Module>(block.ptr()));
  const auto parameters = parent->named_parameters();
  EXPECT_THAT(parameters.keys(), testing::ElementsAre("block.weight", "block.bias"));
  for (const auto& entry : block->torch::nn::Module::named_parameters()) {
    EXPECT_TRUE(parameters["block." + entry.key()].is_same(entry.value())) << entry.key();
  }
  return parent;
}

// The same of a wrapper of Linear(2, 2), which computes as `net` does.
template <class Holder>
void expect_wrapped_member(Linear net, const Holder& wrapper) {
  const auto parent = expect_member(wrapper);
  const auto x = at::ones({3, 2});
  EXPECT_TRUE(at::allclose(parent->block(x), net->forward(x)));
}

void on_one_rank(const std::function<void(const Group&)>& fn) {
  test::run_rank_threads(1, [&](int, const Group& group) { fn(group); });
}

TEST(WrapperMembers, ActivationWrappers) {
  const Linear net(2, 2);
  expect_wrapped_member(net, ActivationCheckpoint(net));
  expect_wrapped_member(net, OffloadWrapper(net, {.pin_memory = false}));
}

TEST(WrapperMembers, DataParallel) {
  const Linear net(2, 2);
  expect_wrapped_member(net, DataParallel(net));
}

TEST(WrapperMembers, DistributedDataParallel) {
  on_one_rank([](const Group& group) {
    const Linear net(2, 2);
    expect_wrapped_member(net, DistributedDataParallel(net, {.process_group = group}));
  });
}

TEST(WrapperMembers, FullySharded) {
  on_one_rank([](const Group& group) {
    const Linear net(2, 2);
    expect_wrapped_member(net, fully_shard(net, {.process_group = group}));
    const std::vector<Linear> list{Linear(2, 2)};
    expect_wrapped_member(list[0], fully_shard(list, {.process_group = group})[0]);
  });
}

TEST(WrapperMembers, WithLayouts) {
  on_one_rank([](const Group& group) {
    const Linear net(2, 2);
    const auto mesh = DeviceMesh::from_group(group, "cpu");
    expect_wrapped_member(net, with_layouts(net, mesh, PrepareModuleInput{}));
  });
}

TEST(WrapperMembers, ParallelizedModule) {
  on_one_rank([](const Group& group) {
    const Linear net(2, 2);
    Parent<Linear> parent(net);
    parallelize_module(parent, DeviceMesh::from_group(group, "cpu"), {{"block", ColwiseParallel()}});
    EXPECT_TRUE(parent.block->weight.is_same(net->weight));
    EXPECT_TRUE(parent.named_parameters()["block.weight"].is_same(net->weight));
  });
}

TEST(WrapperMembers, ConvertedBatchNorm) {
  on_one_rank([](const Group& group) { expect_member(convert_sync_batchnorm(BatchNorm1d(2), group)); });
}

template <class Holder>
constexpr bool kTakesItsModule = std::is_convertible_v<std::shared_ptr<typename Holder::ContainedType>, Holder>;
static_assert(kTakesItsModule<SyncBatchNorm> && kTakesItsModule<pipeline::StageList> &&
              kTakesItsModule<ColumnParallelLinear> && kTakesItsModule<RowParallelLinear> &&
              kTakesItsModule<VocabParallelEmbedding>);

// As fully_shard.h shows it.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(const Group& group) {
    block = register_module("block", cohort::fully_shard(Linear(2, 2), {.process_group = group}));
  }
  at::Tensor forward(at::Tensor x) { return block(x); }
  cohort::FullySharded<LinearImpl> block{nullptr};
};
TORCH_MODULE(Net);

TEST(WrapperMembers, AnOuterWrapperFindsTheInnerOne) {
  on_one_rank([](const Group& group) {
    auto model = fully_shard(Net(group), {.process_group = group});
    EXPECT_THAT(model->named_parameters().keys(), testing::ElementsAre("block.weight", "block.bias"));
    model(at::ones({1, 2})).sum().backward();
    for (const auto& shard : model->parameters()) EXPECT_TRUE(shard.grad().defined());
  });
}

}  // namespace
}  // namespace cohort::parallel
