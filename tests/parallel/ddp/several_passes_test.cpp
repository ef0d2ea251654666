// Several forward passes before their backward passes, and what buffers have to do with that.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <string>

#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "tests/support/inline_engine.h"
#include "tests/support/marks.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::ddp {
namespace {

using test::error_of;
using test::run_rank_threads;

// The gradient of `a` is the input, that of `b` its square.
struct SquareImpl : torch::nn::Module {
  SquareImpl() {
    a = register_parameter("a", torch::ones({4}));
    b = register_parameter("b", torch::ones({4}));
  }
  at::Tensor forward(const at::Tensor& x) { return a * x + b * x * x; }
  at::Tensor a, b;
};
TORCH_MODULE(Square);

at::Tensor input_of(int rank, size_t pass) {
  return torch::arange(1.0, 5.0) * (1 + 3 * rank) + 10 * static_cast<double>(pass);
}

void require_gradients(const Square& net, const at::Tensor& of_a, const at::Tensor& of_b) {
  if (at::allclose(net->a.grad(), of_a) && at::allclose(net->b.grad(), of_b)) return;
  throw std::runtime_error(c10::str("gradients are ", net->a.grad(), net->b.grad(), "\nnot\n", of_a, "\nand\n", of_b));
}

// Of two ranks.
at::Tensor mean_of(size_t pass, int power) { return (input_of(0, pass).pow(power) + input_of(1, pass).pow(power)) / 2; }

struct Passes {
  std::vector<bool> is_local;    // by forward pass
  std::vector<size_t> backward;  // their order
};

// The sum over the passes of the ranks' means. Steps follow each other; the second one has other buckets.
void require_means(const Options& options, int rank, const Passes& passes) {
  Square net;
  DistributedDataParallel ddp(net, options);
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    std::vector<at::Tensor> losses;
    auto of_a = torch::zeros({4}), of_b = torch::zeros({4});
    for (size_t pass = 0; pass < passes.is_local.size(); ++pass) {
      ddp->replica().set_requires_gradient_sync(!passes.is_local[pass]);
      losses.push_back(ddp(input_of(rank, pass)).sum());
      of_a += mean_of(pass, 1);
      of_b += mean_of(pass, 2);
    }
    ddp->replica().set_requires_gradient_sync(true);
    for (const size_t pass : passes.backward) losses[pass].backward();
    require_gradients(net, of_a, of_b);
  }
}

class PassesOfEngine : public testing::TestWithParam<Engine> {};

TEST_P(PassesOfEngine, AreAllAveragedInAnyOrder) {
  run_rank_threads(2, [](int rank, const Group& group) {
    for (const bool views : {false, true}) {
      const Options options{.process_group = group, .gradient_as_bucket_view = views, .engine = GetParam()};
      require_means(options, rank, {{false, false, false}, {0, 1, 2}});
      require_means(options, rank, {{false, false, false}, {2, 0, 1}});
      require_means(options, rank, {{true, true, false}, {0, 1, 2}});
      require_means(options, rank, {{false}, {0}});
    }
  });
}

TEST_P(PassesOfEngine, UnderNoSyncStayLocal) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Square net;
    DistributedDataParallel ddp(net, {.process_group = group, .engine = GetParam()});
    const auto averaged = ddp(input_of(rank, 0)).sum();
    const auto guard = ddp->no_sync();
    const auto local = ddp(input_of(rank, 1)).sum();
    averaged.backward();
    local.backward();
    require_gradients(net, mean_of(0, 1) + input_of(rank, 1), mean_of(0, 2) + input_of(rank, 1).square());
  });
}

// What comes after it is no pass of DDP's any more.
TEST_P(PassesOfEngine, WithOneBackwardPassAreOver) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Square net;
    DistributedDataParallel ddp(net, {.process_group = group, .engine = GetParam()});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const auto first = ddp(input_of(rank, 0)).sum(), second = ddp(input_of(rank, 1)).sum();
      (first + second).backward();
      const auto of_a = mean_of(0, 1) + mean_of(1, 1), of_b = mean_of(0, 2) + mean_of(1, 2);
      require_gradients(net, of_a, of_b);
      (net->a * (rank + 1)).sum().backward();
      require_gradients(net, of_a + (rank + 1), of_b);
    }
  });
}

TEST_P(PassesOfEngine, AGraphThatIsGoneIsNotWaitedFor) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Square net;
    DistributedDataParallel ddp(net, {.process_group = group, .engine = GetParam()});
    ddp(input_of(rank, 5));
    auto dropped = ddp(input_of(rank, 6));
    const auto kept = ddp(input_of(rank, 0)).sum();
    dropped.reset();
    kept.backward();
    (net->a * (rank + 1)).sum().backward();
    require_gradients(net, mean_of(0, 1) + (rank + 1), mean_of(0, 2));
  });
}

INSTANTIATE_TEST_SUITE_P(Engines, PassesOfEngine, testing::Values(Engine::kCohort, kInline));

// A gradient penalty comes to the outputs, but brings no gradients of parameters.
TEST(SeveralPasses, AreNotOverAfterAPassThatBringsNoGradients) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Square net;
    DistributedDataParallel ddp(net, {.process_group = group});
    const auto x = input_of(rank, 0).requires_grad_();
    const auto first = ddp(x).sum(), second = ddp(input_of(rank, 1)).sum();
    const auto slope = torch::autograd::grad({first}, {x}, {}, /*retain_graph=*/true)[0];
    REQUIRE(at::allclose(slope, 1 + 2 * x.detach()));
    second.backward();
    first.backward();
    require_gradients(net, mean_of(0, 1) + mean_of(1, 1), mean_of(0, 2) + mean_of(1, 2));
  });
}

// Argument: the option with which only the first of several backward passes is averaged.
COHORT_WORKER(goes_back_twice) {
  init_process_group(test::backend_of_tests().c_str());
  const auto& option = test::worker_arguments().at(0);
  Options options{.find_unused_parameters = option == "find_unused_parameters"};
  if (option == "mixed_precision") options.mixed_precision = MixedPrecision{.param_dtype = at::kBFloat16};
  Square net;
  if (options.find_unused_parameters) net->register_parameter("unused", torch::ones({1}));
  DistributedDataParallel ddp(net, options);
  const auto run = [&] {
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const auto first = ddp(input_of(get_rank(), 0)).sum(), second = ddp(input_of(get_rank(), 1)).sum();
      first.backward();
      second.backward();
    }
  };
  if (option == "join") {
    const auto join = ddp->join();
    run();
  } else {
    run();
  }
  if (option == "none") require_gradients(net, mean_of(0, 1) + mean_of(1, 1), mean_of(0, 2) + mean_of(1, 2));
  destroy_process_group();
}

TEST(SeveralPasses, WhereOnlyTheFirstIsAveragedMessage) {
  for (const std::string option : {"find_unused_parameters", "mixed_precision", "join", "none"}) {
    SCOPED_TRACE(option);
    const auto results = test::run_workers("goes_back_twice", {.arguments = {option}});
    results.expect_success();
    EXPECT_EQ(results[0].errors,
              option == "none"
                  ? ""
                  : "[cohort] warning: rank 0 of 2: several forward passes of DistributedDataParallel were followed by "
                    "several backward passes. With find_unused_parameters, mixed_precision or join only the first of "
                    "these is averaged, so the ranks' models differ from now on. Call backward() after each forward "
                    "pass, or once for the sum of the losses; or leave the option off\n");
    EXPECT_EQ(results[1].errors, "");
  }
}

struct NormalizingImpl : torch::nn::Module {
  NormalizingImpl() {
    first = register_module("first", torch::nn::Linear(2, 3));
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
    last = register_module("last", torch::nn::Linear(3, 1));
    const at::NoGradGuard no_grad;
    double begin = 1;
    for (auto& parameter : parameters()) {
      parameter.copy_(
          torch::arange(static_cast<double>(parameter.numel())).add_(begin++).sin_().view(parameter.sizes()));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return last(norm(first(x))); }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Normalizing);

at::Tensor rows_of(int rank, int step, int pass) {
  return torch::arange(0.0, 8.0).view({4, 2}).sin() * (1 + rank) +
         torch::arange(0.0, 8.0).view({4, 2}).cos() * (step + 2 * pass);
}

at::Tensor loss_of_two(Normalizing& net, int rank, int step) {
  return net(rows_of(rank, step, 0)).square().sum() + net(rows_of(rank, step, 1)).sum();
}

// Siamese nets and GANs. In training the statistics are those of the batch, so that buffers have no part in gradients.
TEST(SeveralPasses, ThroughBatchNormInTraining) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Normalizing net;
    DistributedDataParallel ddp(net, {.process_group = group});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const auto first = ddp(rows_of(rank, step, 0));
      (first.square().sum() + ddp(rows_of(rank, step, 1)).sum()).backward();
      std::vector<std::vector<at::Tensor>> gradients;
      for (const int other : {0, 1}) {
        Normalizing alone;
        loss_of_two(alone, other, step).backward();
        auto& list = gradients.emplace_back();
        for (const auto& parameter : alone->parameters()) list.push_back(parameter.grad());
      }
      const auto parameters = net->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        REQUIRE(at::allclose(parameters[i].grad(), (gradients[0][i] + gradients[1][i]) / 2, 1e-4, 1e-5));
      }
    }
  });
}

struct MaskedImpl : torch::nn::Module {
  explicit MaskedImpl(const at::Tensor& values) {
    weight = register_parameter("weight", torch::ones({4}));
    mask = register_buffer("mask", values);
  }
  at::Tensor forward(const at::Tensor& x) { return x * weight * mask; }
  at::Tensor weight, mask;
};
TORCH_MODULE(Masked);

TEST(DdpBuffers, ABroadcastIsNoInPlaceOperationForTheGraph) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Masked net(torch::full({4}, rank + 1.0));
    DistributedDataParallel ddp(net, {.process_group = group});
    net->mask.fill_(rank + 5);
    const auto version = net->mask._version();
    ddp(torch::ones({4})).sum().backward();
    REQUIRE(at::equal(net->mask, torch::full({4}, 5.0)));
    REQUIRE(net->mask._version() == version);
  });
}

TEST(DdpBuffers, AnExpandedOneMessage) {
  const auto text =
      "[cohort] DistributedDataParallel: elements of the buffer \"mask\" of sizes [4] share memory, as in an expanded "
      "tensor, so no rank's values can be written into it\n"
      "  hint: register buffer.clone(), or list it in parameters_and_buffers_to_ignore";
  run_rank_threads(2, [&](int, const Group& group) {
    Masked net(torch::ones({1}).expand({4}));
    REQUIRE_EQUAL(error_of([&] { DistributedDataParallel ddp(net, {.process_group = group}); }), text);
    {
      DistributedDataParallel late(net, {.process_group = group, .init_sync = false});
      REQUIRE_EQUAL(error_of([&] { late(torch::ones({4})); }), text);
    }
    DistributedDataParallel ignoring(net, {.process_group = group, .parameters_and_buffers_to_ignore = {"mask"}});
    ignoring(torch::ones({4})).sum().backward();
    REQUIRE(at::equal(net->weight.grad(), torch::ones({4})));
  });
}

}  // namespace
}  // namespace cohort::ddp
