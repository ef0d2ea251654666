// DistributedDataParallel in a Join. Bits are compared with Python's in tests/e2e/parallel/ddp_test.py.
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/inline_engine.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::ddp {
namespace {

using test::error_of;
using test::run_rank_threads;

// Its gradient is its input.
struct ProductImpl : torch::nn::Module {
  explicit ProductImpl(bool counts) {
    if (counts) seen = register_buffer("seen", torch::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight = register_parameter("weight", torch::zeros({2}));
  at::Tensor seen;
};
TORCH_MODULE(Product);

void require_value(const at::Tensor& actual, double expected, const std::string& what) {
  if (at::allclose(actual, torch::full_like(actual, expected))) return;
  throw std::runtime_error(c10::str(what, ": expected ", expected, ", got ", actual));
}

class DdpJoin : public testing::TestWithParam<Engine> {
 protected:
  static Options options(const Group& group) {
    Options options;
    options.process_group = group;
    options.engine = GetParam();
    return options;
  }
};

// Rank r has r + 1 batches; the gradient of each is 6 * (r + 1).
TEST_P(DdpJoin, GradientsAreDividedByAllRanksOrByThoseWithData) {
  run_rank_threads(3, [](int rank, const Group& group) {
    for (const bool by_all : {true, false}) {
      Product net(false);
      DistributedDataParallel ddp(net, options(group));
      const std::vector<double> sums{6 + 12 + 18, 12 + 18, 18};
      {
        const auto join = ddp->join({.divide_by_initial_world_size = by_all});
        for (int i = 0; i <= rank; ++i) {
          ddp->zero_grad();
          ddp(torch::full({2}, 6.0 * (rank + 1))).sum().backward();
          require_value(net->weight.grad(), sums[i] / (by_all ? 3 : 3 - i), c10::str("step ", i));
        }
      }
      ddp->zero_grad();
      ddp(torch::full({2}, 6.0 * (rank + 1))).sum().backward();
      require_value(net->weight.grad(), sums[0] / 3, "after the join");
    }
  });
}

// The model and buffers of rank 1, whose data ends last, and not those of rank 2.
TEST_P(DdpJoin, TheLastJoinersModelWins) {
  run_rank_threads(3, [](int rank, const Group& group) {
    for (const bool syncs_buffers : {true, false}) {
      Product net(true);
      auto with = options(group);
      with.forward_sync_buffers = syncs_buffers;
      DistributedDataParallel ddp(net, with);
      {
        const auto join = ddp->join();
        for (int i = 0; i < (rank == 1 ? 3 : 1); ++i) {
          ddp(torch::ones({2})).sum().backward();
          net->weight.data().fill_(10 * rank + i);
          net->seen.fill_(100 * rank + i);
        }
      }
      require_value(net->weight.detach(), 12, "parameter");
      require_value(net->seen, syncs_buffers ? 102 : 100 * rank + (rank == 1 ? 2 : 0), "buffer");
    }
  });
}

// While it lasts, buffers come from the largest rank with data: rank 0's may be stale.
TEST_P(DdpJoin, BuffersFollowTheLargestRankWithData) {
  run_rank_threads(3, [](int rank, const Group& group) {
    Product net(true);
    DistributedDataParallel ddp(net, options(group));
    const auto join = ddp->join();
    for (int i = 0; i < (rank == 2 ? 1 : 3); ++i) {
      net->seen.fill_(10 * rank + i);
      const auto output = ddp(torch::ones({2}));
      require_value(net->seen, i == 0 ? 20 : 10 + i, c10::str("step ", i));
      output.sum().backward();
    }
  });
}

TEST_P(DdpJoin, LocalStepsAndEvaluationAreShadowedToo) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Product net(true);
    DistributedDataParallel ddp(net, options(group));
    const auto join = ddp->join();
    if (rank == 0) return;
    for (int step = 0; step < 3; ++step) {
      ddp->zero_grad();
      {
        const auto local = ddp->no_sync();
        ddp(torch::ones({2})).sum().backward();
        require_value(net->weight.grad(), 1, "not reduced");
      }
      {
        const torch::NoGradGuard no_grad;
        ddp(torch::ones({2}));
      }
      ddp(torch::ones({2})).sum().backward();
      require_value(net->weight.grad(), 1, "the sum of two, divided by two ranks");
    }
  });
}

// Rank 0 ends before its first step, so that its buckets are rearranged without its gradients.
// The forward pass after the first step rebuilds the buckets, whatever it is for.
TEST_P(DdpJoin, EvaluationAfterTheFirstStep) {
  run_rank_threads(2, [&](int rank, const Group& group) {
    auto net = test::seeded_net<test::Mlp>();
    auto with = options(group);
    with.bucket_cap_mb = 0.0005;
    DistributedDataParallel ddp(net, with);
    const auto join = ddp->join();
    for (int i = 0; i < 3 * rank; ++i) {
      ddp->zero_grad();
      ddp(torch::ones({2, 8})).sum().backward();
      require_value(net->third->bias.grad(), 1, "half of it");
      const at::NoGradGuard no_grad;
      (void)ddp(torch::ones({2, 8}));
    }
  });
}

TEST_P(DdpJoin, ManyBucketsAndARankWithoutAnyData) {
  run_rank_threads(3, [](int rank, const Group& group) {
    torch::manual_seed(1);
    test::Mlp net;
    auto with = options(group);
    with.bucket_cap_mb = 0.0001;
    DistributedDataParallel ddp(net, with);
    {
      const auto join = ddp->join({.divide_by_initial_world_size = false});
      for (int step = 0; step < 2 * rank; ++step) {
        ddp->zero_grad();
        ddp(torch::ones({2, 8})).sum().backward();
        const auto bias = net->third->bias.grad();
        require_value(bias, 2, "each rank's is 2");
      }
    }
    REQUIRE(GetParam() == kInline || (ddp->reducer().has_rebuilt_buckets() && ddp->reducer().buckets().size() > 2));
  });
}

// Rank 0 has one batch, which uses neither branch; the others go on with theirs.
TEST_P(DdpJoin, ParametersThatOnlySomeUse) {
  run_rank_threads(3, [](int rank, const Group& group) {
    for (const bool is_static : {false, true}) {
      test::Branches net;
      auto with = options(group);
      with.find_unused_parameters = !is_static;
      with.static_graph = is_static;
      DistributedDataParallel ddp(net, with);
      const auto join = ddp->join();
      for (int i = 0; i < (rank == 0 ? (is_static ? 0 : 1) : 3); ++i) {
        ddp->zero_grad();
        ddp(torch::ones({2, 8}), /*use_left=*/rank == 1, /*use_right=*/false).sum().backward();
        require_value(net->left->bias.grad(), 2.0 / 3, "used by rank 1 alone");
        REQUIRE(!net->right->bias.grad().defined());
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Engines, DdpJoin, testing::Values(Engine::kCohort, Engine::kC10d, kInline));

TEST(DdpJoinOfOneEngine, SparseGradients) {
  run_rank_threads(2, [](int rank, const Group& group) {
    torch::nn::Embedding net(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    DistributedDataParallel ddp(net, {.process_group = group});
    const auto join = ddp->join();
    for (int i = 0; i <= 2 * rank; ++i) {
      ddp->zero_grad();
      ddp(torch::tensor({1, 3})).sum().backward();
      const auto dense = net->weight.grad().to_dense();
      require_value(dense[1], i == 0 ? 1 : 0.5, "used row");
      require_value(dense[0], 0, "unused row");
    }
  });
}

// A hook sees the zeros of ranks without data.
TEST(DdpJoinOfOneEngine, HooksAreShadowed) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Product net(false);
    DistributedDataParallel ddp(net, {.process_group = group});
    int num_calls = 0;
    ddp->register_comm_hook(group, [&](const Group& ranks, GradBucket& bucket) {
      ++num_calls;
      return allreduce_hook(ranks, bucket);
    });
    {
      const auto join = ddp->join();
      for (int i = 0; i <= 2 * rank; ++i) {
        ddp->zero_grad();
        ddp(torch::full({2}, 4.0)).sum().backward();
        require_value(net->weight.grad(), i == 0 ? 4 : 2, c10::str("step ", i));
      }
    }
    REQUIRE(num_calls == 3);
  });
}

// A rank that had no data while the others learned the graph.
TEST(DdpJoinOfOneEngine, StaticGraphThatOneRankLearnsLate) {
  for (const auto engine : {Engine::kCohort, kInline}) {
    for (const int num_steps : {1, 3}) {
      run_rank_threads(2, [&](int rank, const Group& group) {
        test::Branches net;
        Options options;
        options.process_group = group;
        options.bucket_cap_mb = 0.0001;
        options.static_graph = true;
        options.engine = engine;
        DistributedDataParallel ddp(net, options);
        for (const bool has_rank_0_data : {false, true, true}) {
          const auto join = ddp->join();
          for (int i = 0; i < (rank == 1 || has_rank_0_data ? num_steps : 0); ++i) {
            ddp->zero_grad();
            ddp(torch::ones({2, 8}), /*use_left=*/true, /*use_right=*/false).sum().backward();
            require_value(net->left->bias.grad(), has_rank_0_data ? 2 : 1, "used");
            REQUIRE(!net->right->bias.grad().defined());
          }
        }
      });
    }
  }
}

TEST(DdpJoinOfOneEngine, WhatItExcludesMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    Options options;
    options.process_group = group;
    options.skip_all_reduce_unused_params = true;
    DistributedDataParallel skipping(test::Mlp(), options);
    test::require_equal(
        error_of([&] { (void)skipping->join(); }),
        "[cohort] join and skip_all_reduce_unused_params exclude each other: ranks without data do not know which "
        "buckets the others leave out.");
    options.skip_all_reduce_unused_params = false;
    test::Mlp net;
    options.param_to_hook_all_reduce = net->first->weight;
    options.delay_all_reduce_named_params = {{"third.weight", net->third->weight}};
    DistributedDataParallel delayed(net, options);
    test::require_equal(
        error_of([&] { (void)delayed->join(); }),
        "[cohort] join and delay_all_reduce_named_params exclude each other: ranks without data take no part in "
        "delayed all-reduces.");
    test::require_equal(
        error_of([&] { delayed->track_gradient_norm(); }),
        "[cohort] track_gradient_norm and delay_all_reduce_named_params exclude each other: delayed gradients are "
        "not in the norm. Use clip_grad_norm_ after backward.");
    DistributedDataParallel plain(test::Mlp(), {.process_group = group});
    const auto join = plain->join();
    test::require_equal(error_of([&] { plain->track_gradient_norm(); }),
                        "[cohort] track_gradient_norm cannot be called inside a join, since other ranks may have run "
                        "out of data. Use clip_grad_norm_ after backward.");
  });
}

TEST(DdpJoinOfOneEngine, EarlyTerminationMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Product net(true);
    DistributedDataParallel ddp(net, {.process_group = group});
    const auto error = error_of([&] {
      const auto join = ddp->join({.throw_on_early_termination = true});
      for (int i = 0; i <= rank; ++i) ddp(torch::ones({2})).sum().backward();
    });
    REQUIRE_EQUAL(error, rank == 0 ? "Rank 0 exhausted all inputs."
                                   : "Detected at least one rank that exhausted inputs. Throwing across all ranks.");
    ddp(torch::ones({2})).sum().backward();  // both go on
    require_value(net->weight.grad(), 2, "two steps");
  });
}

}  // namespace
}  // namespace cohort::ddp
