// fully_shard on complex parameters, whose gradients autograd gives as lazily conjugated views.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <memory>

#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "tests/mesh/thread_mesh.h"
#include "tests/support/rank_threads.h"

namespace cohort::fsdp {
namespace {

at::Tensor numbers(at::IntArrayRef sizes, int64_t seed) {
  const auto angles = at::arange(c10::multiply_integers(sizes), at::kFloat).view(sizes) * 0.37 + 1.7 * seed;
  return at::complex(at::sin(angles), at::cos(angles + 1) + 0.25);
}

// Its gradient is `x * w.conj()`'s, conjugated lazily.
struct Rotation : torch::nn::Module {
  Rotation() { weight = register_parameter("weight", numbers({4, 3}, 1)); }
  at::Tensor forward(at::Tensor x) { return weight.conj() * x; }
  at::Tensor weight;
};

at::Tensor loss_of(const at::Tensor& output, int rank) { return at::real(output * numbers({4, 3}, 20 + rank)).sum(); }
at::Tensor input_of(int rank) { return numbers({4, 3}, 10 + rank); }

at::Tensor gradient_of_one_process(int world_size) {
  Rotation net;
  std::vector<at::Tensor> losses;
  for (int rank = 0; rank < world_size; ++rank) losses.push_back(loss_of(net.forward(input_of(rank)), rank));
  at::stack(losses).mean().backward();
  return net.weight.grad().resolve_conj();
}

TEST(ComplexNumbers, HaveLazilyConjugatedGradients) {
  Rotation net;
  loss_of(net.forward(input_of(0)), 0).backward();
  EXPECT_TRUE(net.weight.grad().is_conj());
}

enum class Way { kOneMemory, kGathered, kReplicas };

class FullyShardComplex : public testing::TestWithParam<Way> {};

TEST_P(FullyShardComplex, GradientsAreThoseOfOneProcess) {
  const auto way = GetParam();
  const int world_size = way == Way::kReplicas ? 4 : 2;
  const auto expected = gradient_of_one_process(world_size);
  ASSERT_GT(at::imag(expected).abs().min().item<float>(), 1e-3);
  test::run_rank_threads(world_size, [&](int rank, const Group& group) {
    Options options{.process_group = group, .one_memory = way == Way::kOneMemory};
    if (way == Way::kReplicas) options = {.mesh = test::thread_mesh(group, {2, 2})};
    auto model = fully_shard(std::make_shared<Rotation>(), options);
    loss_of(model(input_of(rank)), rank).backward();
    const auto shard = model->parameters()[0];
    const auto own = expected.chunk(2)[way == Way::kReplicas ? rank % 2 : rank];
    EXPECT_TRUE(at::allclose(shard.grad().resolve_conj(), own)) << shard.grad() << own;
    const auto norm = cohort::nn::utils::clip_grad_norm_(model->parameters(), 0.5);
    EXPECT_FALSE(norm.is_complex());
    EXPECT_NEAR(norm.item<double>(), at::linalg_vector_norm(expected).item<double>(), 1e-4);
    EXPECT_TRUE(at::allclose(shard.grad(), own * (0.5 / norm.item<double>()), 1e-4, 1e-6));
    barrier({.group = group});
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, FullyShardComplex, testing::Values(Way::kOneMemory, Way::kGathered, Way::kReplicas));

}  // namespace
}  // namespace cohort::fsdp
