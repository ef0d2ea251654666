#include "cohort/parallel/data_parallel/replicas.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "tests/parallel/data_parallel/nets.h"
#include "tests/support/require.h"

namespace cohort::nn::parallel {
namespace {

using test::error_of;
using test::ManySided;
using test::ManySidedImpl;

Devices on_cpu(size_t count) { return Devices(count, at::kCPU); }

std::vector<std::shared_ptr<ManySidedImpl>> typed(const Replicas& replicas) {
  return detail::as_type<ManySidedImpl>(replicas.modules(), replicas.modules().size());
}

TEST(Replicas, HaveTheModulesValuesAndOnlyTheFirstItsMemory) {
  ManySided net;
  Replicas replicas(net.ptr(), on_cpu(3));
  replicas.refresh(3, /*detach=*/false);
  for (size_t k = 0; k < 3; ++k) {
    const auto& replica = *typed(replicas)[k];
    EXPECT_TRUE(at::equal(replica.first->weight, net->first->weight)) << k;
    EXPECT_EQ(replica.first->weight.is_alias_of(net->first->weight), k == 0);
    EXPECT_EQ(replica.norm->running_mean.is_alias_of(net->norm->running_mean), k == 0);
    EXPECT_TRUE(replica.scale.requires_grad()) << k;
    EXPECT_FALSE(replica.scale.is_leaf()) << k;
    EXPECT_FALSE(replica.frozen.requires_grad()) << k;
  }
}

TEST(Replicas, FollowTheModuleWithoutBeingMadeAnew) {
  ManySided net;
  Replicas replicas(net.ptr(), on_cpu(2));
  replicas.refresh(2, false);
  const auto second = typed(replicas)[1];
  {
    const torch::NoGradGuard no_grad;
    net->scale.fill_(5);
    net->passes.fill_(7);
  }
  net->frozen.data().fill_(6);  // which autograd does not notice
  net->last->weight.set_data(at::ones({3, 8}));
  net->norm->eval();
  net->first->bias.set_requires_grad(false);
  replicas.refresh(2, false);
  EXPECT_EQ(typed(replicas)[1], second);
  for (const auto& replica : typed(replicas)) {
    EXPECT_TRUE(at::equal(replica->scale, at::full({8}, 5.0)));
    EXPECT_TRUE(at::equal(replica->frozen, at::full({8}, 6.0)));
    EXPECT_TRUE(at::equal(replica->passes, at::full({1}, 7.0)));
    EXPECT_TRUE(at::equal(replica->last->weight, at::ones({3, 8})));
    EXPECT_TRUE(replica->is_training());
    EXPECT_FALSE(replica->norm->is_training());
    EXPECT_FALSE(replica->first->bias.requires_grad());
  }
  net->eval();
  net->norm->train();
  replicas.refresh(2, false);
  EXPECT_FALSE(second->is_training());
  EXPECT_TRUE(second->norm->is_training());
}

TEST(Replicas, GradientsAddUpInTheOrderOfTheReplicas) {
  ManySided net;
  Replicas replicas(net.ptr(), on_cpu(3));
  replicas.refresh(3, false);
  // (1 + big) - big is 0 in float32, and 1 from the other end.
  constexpr float kBig = 1e9F;
  const std::vector<float> factors{1, kBig, -kBig};
  at::Tensor loss = at::zeros({});
  for (const size_t k : {2, 0, 1}) loss = loss + (typed(replicas)[k]->scale * factors[k]).sum();
  loss.backward();
  EXPECT_TRUE(at::equal(net->scale.grad(), at::zeros({8})));
  EXPECT_FALSE(net->first->weight.grad().defined());
}

TEST(Replicas, SparseGradientsStaySparseIfAllAre) {
  torch::nn::Embedding net(torch::nn::EmbeddingOptions(5, 2).sparse(true));
  const auto replicas = replicate(net.ptr(), on_cpu(2));
  (replicas[0]->forward(at::tensor({1, 1})).sum() + replicas[1]->forward(at::tensor({1, 4})).sum() * 2).backward();
  ASSERT_TRUE(net->weight.grad().is_sparse());
  EXPECT_TRUE(at::equal(net->weight.grad().to_dense(),
                        at::tensor({0.F, 0.F, 4.F, 4.F, 0.F, 0.F, 0.F, 0.F, 2.F, 2.F}).view({5, 2})));
  net->zero_grad();
  (replicas[0]->forward(at::tensor({1})).sum() + replicas[1]->weight.sum()).backward();
  EXPECT_FALSE(net->weight.grad().is_sparse());
  EXPECT_TRUE(at::equal(net->weight.grad()[1], at::full({2}, 2.0)));
}

TEST(Replicas, HaveSecondDerivatives) {
  ManySided net;
  const auto replicas = replicate(net.ptr(), on_cpu(2));
  const auto cubes = replicas[0]->scale.pow(3).sum() + replicas[1]->scale.pow(3).sum() * 2;
  const auto first = torch::autograd::grad({cubes}, {net->scale}, {}, std::nullopt, /*create_graph=*/true)[0];
  first.sum().backward();
  EXPECT_TRUE(at::allclose(net->scale.grad(), 18 * net->scale.detach()));
}

TEST(Replicas, WithoutAutograd) {
  ManySided net;
  const auto detached = replicate(net.ptr(), on_cpu(2), /*detach=*/true);
  EXPECT_FALSE(detached[1]->scale.requires_grad());
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(replicate(net.ptr(), on_cpu(2))[0]->scale.requires_grad());
  EXPECT_TRUE(replicate(net.ptr(), {}).empty());
}

TEST(Replicas, LeaveRandomNumbersAsTheyAre) {
  ManySided net;
  torch::manual_seed(3);
  const auto expected = at::randn({2});
  torch::manual_seed(3);
  const Replicas replicas(net.ptr(), on_cpu(2));
  EXPECT_TRUE(at::equal(at::randn({2}), expected));
}

TEST(Replicas, AreInUseWhileAGraphNeedsThem) {
  ManySided net;
  ReplicaCache cache(net.ptr(), on_cpu(2));
  const auto x = at::randn({4, 6});
  const auto forward = [&] { return typed(cache.take(2, false))[1]->forward(x).sum(); };
  auto loss = forward();
  auto other = forward();
  EXPECT_EQ(cache.num_sets(), 2);
  loss.backward();  // now nothing is kept for it
  forward();
  other = at::Tensor();
  loss = forward();
  loss = at::Tensor();
  EXPECT_EQ(cache.num_sets(), 2);
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 10; ++i) kept.push_back(forward());
  EXPECT_EQ(cache.num_sets(), 4) << "sets beyond are dropped, and live on in their graphs";
  for (const auto& one : kept) one.backward();
  cache.clear();
  EXPECT_EQ(cache.num_sets(), 0);
}

TEST(Replicas, AreMadeAnewWhereTheModuleHasChangedItsShape) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2));
  ReplicaCache cache(net.ptr(), on_cpu(2));
  cache.take(2, false);
  net->push_back(torch::nn::Linear(2, 2));
  EXPECT_EQ(cache.take(2, false).modules()[1]->parameters().size(), 4);
  net->to(at::kDouble);
  EXPECT_EQ(cache.take(2, false).modules()[1]->parameters()[0].scalar_type(), at::kDouble);
  EXPECT_EQ(cache.num_sets(), 1);
}

TEST(Replicas, AModuleThatIsChangedBeforeBackwardIsFoundOut) {
  ManySided net;
  const auto replicas = replicate(net.ptr(), on_cpu(2));
  const auto loss = replicas[0]->forward(at::randn({4, 6})).sum();
  {
    const torch::NoGradGuard no_grad;
    net->scale.mul_(2);
  }
  EXPECT_NE(error_of([&] { loss.backward(); }).find("modified by an inplace operation"), std::string::npos);
}

TEST(Replicas, ServeTrainingAfterInferenceMode) {
  ManySided net;
  ReplicaCache cache(net.ptr(), on_cpu(2));
  {
    const c10::InferenceMode inference;
    typed(cache.take(2, false))[1]->forward(at::randn({4, 6}));
  }
  typed(cache.take(2, false))[1]->forward(at::randn({4, 6})).sum().backward();
  EXPECT_TRUE(net->scale.grad().defined());
  EXPECT_EQ(cache.num_sets(), 1);
}

struct UnclonableImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};

struct AnotherTypeImpl : ManySidedImpl {};

TEST(Replicas, ModulesThatCannotBeClonedMessage) {
  const auto unclonable = error_of([] { replicate(std::make_shared<UnclonableImpl>(), on_cpu(2)); });
  EXPECT_EQ(unclonable.find("clone() has not been implemented for "), 0) << unclonable;
  EXPECT_NE(unclonable.find("(DataParallel makes replicas of a module with its clone())"), std::string::npos)
      << unclonable;
  const auto another = error_of([] { replicate(std::make_shared<AnotherTypeImpl>(), on_cpu(2)); });
  EXPECT_NE(another.find(", which is not the module's own type; derive the module itself from torch::nn::Cloneable"),
            std::string::npos)
      << another;
}

}  // namespace
}  // namespace cohort::nn::parallel
