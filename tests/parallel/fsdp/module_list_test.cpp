// fully_shard of several modules at once: one group, there from the first module's forward pass until the last one's.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>

#include "cohort/comm/collectives/collectives.h"
#include "tests/parallel/fsdp/gathered_blocks.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::fsdp {
namespace {

using cohort::test::error_of;
using cohort::test::run_rank_threads;
using test::batch;
using test::block_loss;
using test::bytes_there;
using test::in_group;
using test::NamedGather;
using test::NamedReduce;
using testing::ElementsAre;

constexpr size_t kBlockBytes = (6 * 10 + 10 + 10 * 6) * sizeof(float);

FullySharded<test::ShardedNet> lists_in(const Group& group) {
  return fully_shard(test::net_of_blocks_in_lists(in_group(group)), in_group(group));
}

void watch(ShardedModule& module, const std::string& name, std::vector<std::string>& log) {
  module.set_custom_all_gather(std::make_shared<NamedGather>(name, &log));
  module.set_custom_reduce_scatter(std::make_shared<NamedReduce>(name, &log));
}

TEST(GatheredLists, OneGatherAndOneReductionForAll) {
  run_rank_threads(2, [](int rank, const Group& group) {
    std::vector<std::string> log;
    auto model = lists_in(group);
    auto& blocks = model->module().blocks;
    watch(*model, "root", log);
    watch(*blocks[1], "0 and 1", log);
    watch(*blocks[2], "2", log);
    for (int step = 0; step < 2; ++step) {
      log.clear();
      auto output = model(batch(rank, step));
      EXPECT_THAT(log, ElementsAre("gather root", "gather 0 and 1", "gather 2"));
      log.clear();
      block_loss(output, rank, step).backward();
      EXPECT_THAT(log, ElementsAre("gather 2", "gather 0 and 1", "reduce 2", "reduce 0 and 1", "reduce root"));
    }
  });
}

TEST(GatheredLists, ParametersAreThereFromTheFirstToTheLast) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto model = lists_in(group);
    auto& blocks = model->module().blocks;
    std::vector<size_t> bytes;
    struct Look final : AllGather {
      explicit Look(std::function<void()> look) : look(std::move(look)) {}
      WorkPtr operator()(const at::Tensor& output, const at::Tensor& input, const Group& group, bool async) override {
        look();
        return AllGather::operator()(output, input, group, async);
      }
      std::function<void()> look;
    };
    blocks[2]->set_custom_all_gather(
        std::make_shared<Look>([&] { bytes.push_back(bytes_there(blocks[0]->module())); }));
    auto output = model(batch(rank, 0));
    EXPECT_THAT(bytes, ElementsAre(0u));  // both have run
    block_loss(output, rank, 0).backward();
    EXPECT_EQ(bytes_there(model->module()), 0u);
    // By themselves, inside of another forward pass.
    blocks[0]->unshard();
    EXPECT_EQ(bytes_there(blocks[1]->module()), kBlockBytes);
    blocks[1]->reshard();
    EXPECT_EQ(bytes_there(blocks[0]->module()), 0u);
  });
}

TEST(GatheredLists, GradientsAreThoseOfOneProcess) {
  run_rank_threads(3, [](int rank, const Group& group) {
    auto model = lists_in(group);
    const auto wanted = test::plain_gradients(3);
    for (int pass = 0; pass < 2; ++pass) {
      block_loss(model(batch(rank, 0)), rank, 0).backward();
      test::expect_shards_of(wanted, model->parameters(), group, pass + 1);
    }
  });
}

// Its own parameters each, though they are one group.
TEST(GatheredLists, WrappersKeepTheirOwnParameters) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto model = lists_in(group);
    auto& blocks = model->module().blocks;
    EXPECT_EQ(blocks[0]->parameters().size(), 3u);
    EXPECT_EQ(blocks[1]->named_parameters().keys(), (std::vector<std::string>{"up.weight", "up.bias", "down.weight"}));
    EXPECT_FALSE(blocks[0]->parameters()[0].is_same(blocks[1]->parameters()[0]));
    EXPECT_EQ(&blocks[0]->sharding(), &blocks[1]->sharding());
    EXPECT_EQ(blocks[0]->sharding().sharded_parameters()[4].name, "1.up.bias");
    std::vector<std::string> written;
    blocks[1]->write([&](const std::string& name, const at::Tensor& full) {
      written.push_back(name);
      full.fill_(7);
    });
    const std::vector<std::string> own = {"up.weight", "up.bias", "down.weight"};
    EXPECT_EQ(written, rank == 0 ? own : std::vector<std::string>());
    for (const auto& shard : blocks[1]->parameters()) EXPECT_TRUE(at::all(shard == 7).item<bool>());
    EXPECT_FALSE(at::any(blocks[0]->parameters()[0] == 7).item<bool>());
    written.clear();
    model->write([&](const std::string& name, const at::Tensor&) { written.push_back(name); });
    const auto wanted = rank == 0 ? model->named_parameters().keys() : std::vector<std::string>();
    EXPECT_THAT(written, testing::UnorderedElementsAreArray(wanted));
    {
      const auto local = blocks[0]->no_sync();
      EXPECT_FALSE(blocks[1]->sharding().settings().requires_gradient_sync);
    }
    EXPECT_TRUE(blocks[1]->sharding().settings().requires_gradient_sync);
  });
}

// A root whose forward pass stops before the head, which runs afterwards, on parts of what came out.
template <class Norm, class Head>
struct Trunk : torch::nn::Module {
  Trunk(Norm norm_of_it, Head head_of_it) : norm(std::move(norm_of_it)), head(std::move(head_of_it)) {
    in = register_module("in", torch::nn::Linear(4, 6));
    test::initialize(*in, 100);
    register_module("norm", norm.ptr());
    register_module("head", head.ptr());
  }
  at::Tensor forward(at::Tensor x) { return norm(in(x)); }
  torch::nn::Linear in{nullptr};
  Norm norm;
  Head head;
};

torch::nn::LayerNorm seeded_norm() {
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({6}));
  test::initialize(*norm, 10);
  return norm;
}

torch::nn::Linear seeded_head() {
  torch::nn::Linear head(6, 3);
  test::initialize(*head, 20);
  return head;
}

at::Tensor chunk_loss(const at::Tensor& output, int rank, int64_t chunk) {
  return (output * test::values_like(output.detach(), 300 + 10 * chunk + rank)).sum();
}

std::vector<at::Tensor> gradients_of_chunks(int world_size) {
  auto net = std::make_shared<Trunk<torch::nn::LayerNorm, torch::nn::Linear>>(seeded_norm(), seeded_head());
  at::Tensor loss = at::zeros({});
  for (int rank = 0; rank < world_size; ++rank) {
    const auto hidden = net->forward(batch(rank, 0)).chunk(3);
    for (size_t i = 0; i < hidden.size(); ++i) loss = loss + chunk_loss(net->head(hidden[i]), rank, i);
  }
  (loss / world_size).backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : net->parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

// `passes`: the losses of chunks one after the other, or their sum at once.
void expect_chunks_train_alike(bool one_by_one) {
  run_rank_threads(2, [&](int rank, const Group& group) {
    auto [norm, head] = fully_shard(std::tuple(seeded_norm(), seeded_head()), in_group(group));
    using Net = Trunk<decltype(norm), decltype(head)>;
    auto model = fully_shard(std::make_shared<Net>(norm, head), in_group(group));
    std::vector<std::string> log;
    watch(*head, "both", log);
    const auto wanted = gradients_of_chunks(2);
    for (int step = 1; step <= 2; ++step) {
      const auto hidden = model(batch(rank, 0));
      EXPECT_THAT(log, ElementsAre("gather both"));
      EXPECT_EQ(bytes_there(*head), 0u);  // it has not come in the root's pass, and is let go with it
      const auto detached = hidden.detach().requires_grad_();
      const auto chunks = (one_by_one ? detached : hidden).chunk(3);
      if (one_by_one) model->set_is_last_backward(false);
      at::Tensor sum = at::zeros({});
      for (size_t i = 0; i < chunks.size(); ++i) {
        const auto loss = chunk_loss(head(chunks[i]), rank, i);
        if (one_by_one) loss.backward();
        sum = sum + loss;
      }
      if (one_by_one) {
        model->set_is_last_backward(true);
        hidden.backward(detached.grad());
      } else {
        EXPECT_THAT(log, ElementsAre("gather both", "gather both"));  // once for all chunks
        sum.backward();
        EXPECT_THAT(log, ElementsAre("gather both", "gather both", "reduce both"));
      }
      test::expect_shards_of(wanted, model->parameters(), group, step);
      EXPECT_EQ(bytes_there(*head), 0u);
      log.clear();
    }
    const at::NoGradGuard no_grad;  // nothing stays where no backward pass will let it go
    EXPECT_TRUE(at::isfinite(head(at::ones({2, 6}))).all().item<bool>());
    EXPECT_EQ(bytes_there(*head), 0u);
  });
}

TEST(GatheredLists, AHeadThatRunsOnChunksAfterTheRoot) { expect_chunks_train_alike(/*one_by_one=*/false); }

TEST(GatheredLists, AHeadWhoseChunksHaveBackwardPassesOfTheirOwn) { expect_chunks_train_alike(/*one_by_one=*/true); }

// The first module's input has no gradient: the group is reduced once all the same.
TEST(GatheredLists, TiedWeights) {
  struct Head : torch::nn::Module {
    explicit Head(const at::Tensor& shared) : weight(register_parameter("weight", shared)) {}
    at::Tensor forward(at::Tensor x) { return x.matmul(weight.t()); }
    at::Tensor weight;
  };
  struct Tied : torch::nn::Module {
    Tied(FullySharded<torch::nn::EmbeddingImpl> first, FullySharded<Head> last)
        : embedding(std::move(first)), head(std::move(last)) {
      register_module("embedding", embedding.ptr());
      register_module("head", head.ptr());
    }
    at::Tensor forward(at::Tensor x) { return head(embedding(x).tanh()); }
    FullySharded<torch::nn::EmbeddingImpl> embedding;
    FullySharded<Head> head;
  };
  const auto make = [] {
    torch::nn::Embedding embedding(5, 4);
    test::initialize(*embedding, 3);
    return std::tuple(embedding, std::make_shared<Head>(embedding->weight));
  };
  run_rank_threads(2, [&](int rank, const Group& group) {
    auto [embedding, head] = fully_shard(make(), in_group(group));
    std::vector<std::string> log;
    auto model = fully_shard(std::make_shared<Tied>(embedding, head), in_group(group));
    watch(*head, "both", log);
    const auto words = at::arange(5).roll(rank);
    const auto loss_of = [&](const at::Tensor& output, int of) {
      return (output * test::values_like(output.detach(), 50 + of)).sum();
    };
    loss_of(model(words), rank).backward();
    EXPECT_THAT(log, ElementsAre("gather both", "gather both", "reduce both"));
    auto [plain, plain_head] = make();
    for (const int of : {0, 1}) (loss_of(plain_head->forward(plain(at::arange(5).roll(of)).tanh()), of) / 2).backward();
    EXPECT_EQ(model->parameters().size(), 1u);
    test::expect_shards_of({plain->weight.grad()}, model->parameters(), group);
  });
}

// An exception between two modules: the next pass begins anew.
TEST(GatheredLists, AfterAnException) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto model = lists_in(group);
    auto& blocks = model->module().blocks;
    EXPECT_THROW(model(at::ones({5, 3})), c10::Error);      // before the list
    EXPECT_THROW(blocks[0](at::ones({5, 7})), c10::Error);  // in it
    const auto wanted = test::plain_gradients(2);
    block_loss(model(batch(rank, 0)), rank, 0).backward();
    test::expect_shards_of(wanted, model->parameters(), group);
    EXPECT_EQ(bytes_there(model->module()), 0u);
  });
}

TEST(GatheredLists, Messages) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto options = in_group(group);
    auto blocks = fully_shard(std::vector{std::make_shared<test::Block>(), std::make_shared<test::Block>()}, options);
    const auto name = blocks[0]->module().name();
    EXPECT_EQ(error_of([&] {
                blocks[0](at::ones({2, 6}));
              }),
              "FSDP requires a single root module but got (" + name + ", " + name + ")");
    auto outer = std::make_shared<test::Block>();
    EXPECT_EQ(error_of([&] { fully_shard(std::tuple(outer, outer->up), options); }),
              "[cohort] fully_shard got a list of modules in which torch::nn::LinearImpl is a part of " + name +
                  ": give it the outer one alone");
    EXPECT_EQ(error_of([&] { fully_shard(std::tuple(outer, outer), options); }),
              "[cohort] fully_shard got a list of modules with " + name + " twice");
    EXPECT_EQ(error_of([&] { fully_shard(std::vector<std::shared_ptr<test::Block>>(), options); }),
              "[cohort] fully_shard got a list without modules");
    EXPECT_EQ(error_of([&] { fully_shard(std::tuple(outer, torch::nn::Linear(2, 2)), options); }), "(no error)");
  });
}

TEST(GatheredLists, NumbersOfModulesMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    std::vector<torch::nn::Linear> nets(rank == 0 ? 2 : 1, nullptr);
    for (auto& net : nets) net = torch::nn::Linear(2, 2);
    EXPECT_EQ(error_of([&] { fully_shard(nets, in_group(group)); }),
              "[cohort] fully_shard: nothing was sharded, as the ranks differ: the number of modules is 2 on rank 0, "
              "but 1 on rank 1");
  });
}

}  // namespace
}  // namespace cohort::fsdp
