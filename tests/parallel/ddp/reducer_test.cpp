// The untyped core, on ranks that are threads with a group each.
#include "cohort/parallel/ddp/reducer.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "cohort/base/system/env.h"
#include "cohort/comm/shm/make_shm_backend.h"
#include "cohort/parallel/ddp/buckets/bucket_plan.h"
#include "cohort/parallel/module/gradient_hooks.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/inline_engine.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"
#include "tests/support/rounding.h"

namespace cohort::ddp {
namespace {

using test::batch_of;
using test::Branches;
using test::Mixed;
using test::Mlp;
using test::run_rank_threads;
using test::seeded_net;

void expect_equal(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  if (actual.defined() != expected.defined()) throw std::runtime_error(what + ": only one is defined");
  if (actual.defined() && !at::equal(actual, expected)) {
    throw std::runtime_error(c10::str(what, ": expected\n", expected, "\ngot\n", actual));
  }
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

using Step = std::function<void(Reducer&, torch::nn::Module&, int rank, int64_t step)>;

// Trains `steps` steps with an engine; returns the gradients of every step on every rank and the final buckets.
struct Run {
  std::vector<std::vector<at::Tensor>> gradients;  // [rank], all steps in a row
  std::vector<BucketPlan> buckets;                 // [rank]
};

template <class Net>
Run run_engine(int world_size, ReducerOptions options, int64_t steps, const Step& step) {
  Run run{std::vector<std::vector<at::Tensor>>(world_size), std::vector<BucketPlan>(world_size)};
  run_rank_threads(world_size, [&](int rank, const Group& group) {
    auto net = seeded_net<Net>();
    auto rank_options = options;
    rank_options.process_group = group;
    Reducer reducer(net->parameters(), rank_options);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int64_t i = 0; i < steps; ++i) {
      net->zero_grad();  // the optimizer's would detach views of buckets in place
      step(reducer, *net, rank, i);
      for (const auto& parameter : net->parameters()) {
        run.gradients[rank].push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
      }
      optimizer.step();
    }
    run.buckets[rank] = reducer.buckets();
  });
  return run;
}

void expect_same(const Run& actual, const Run& expected) {
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (size_t rank = 0; rank < actual.gradients.size(); ++rank) {
    ASSERT_EQ(actual.gradients[rank].size(), expected.gradients[rank].size());
    for (size_t i = 0; i < actual.gradients[rank].size(); ++i) {
      const auto& a = actual.gradients[rank][i];
      const auto& b = expected.gradients[rank][i];
      ASSERT_EQ(a.defined(), b.defined()) << "rank " << rank << ", gradient " << i;
      ASSERT_TRUE(!a.defined() || at::equal(a, b))
          << "rank " << rank << ", gradient " << i << ", by " << (a - b).abs().max().item<double>();
    }
  }
}

template <class Net>
void plain_step(Reducer& reducer, torch::nn::Module& module, int rank, int64_t step) {
  auto& net = *module.as<typename Net::ContainedType>();
  reducer.prepare_forward();
  const auto output = net.forward(batch_of(rank, step));
  reducer.prepare({output});
  output.pow(2).mean().backward();
}

// Rank r uses its own branches: left unused by all in step 0, used by rank 0 only in step 1, by all later.
void branch_step(Reducer& reducer, torch::nn::Module& module, int rank, int64_t step) {
  auto& net = *module.as<Branches::ContainedType>();
  reducer.prepare_forward();
  const auto output = net.forward(batch_of(rank, step), step > 1 || (step == 1 && rank == 0), step != 2);
  reducer.prepare({output});
  output.pow(2).mean().backward();
}

class EngineAgreement : public testing::TestWithParam<int> {};

TEST_P(EngineAgreement, MlpGradientsAndBucketsEqualLibTorchsBitwise) {
  const ReducerOptions small{.process_group = {}, .bucket_cap_mb = 0.0005};
  auto with = [&](Engine engine) {
    auto options = small;
    options.engine = engine;
    return run_engine<Mlp>(GetParam(), options, 5, plain_step<Mlp>);
  };
  const auto ours = with(Engine::kCohort);
  const auto theirs = with(Engine::kC10d);
  expect_same(ours, theirs);
  EXPECT_EQ(ours.buckets, theirs.buckets);
  EXPECT_GT(ours.buckets[0].size(), 1u);
}

TEST_P(EngineAgreement, MixedDtypesAndSharedWeightsEqualLibTorchs) {
  auto with = [&](Engine engine) {
    ReducerOptions options;
    options.engine = engine;
    return run_engine<Mixed>(GetParam(), options, 5, plain_step<Mixed>);
  };
  const auto ours = with(Engine::kCohort);
  const auto theirs = with(Engine::kC10d);
  expect_same(ours, theirs);
  EXPECT_EQ(ours.buckets, theirs.buckets);
}

TEST_P(EngineAgreement, UnusedParametersEqualLibTorchs) {
  auto with = [&](Engine engine) {
    ReducerOptions options{.process_group = {}, .bucket_cap_mb = 0.0001, .find_unused_parameters = true};
    options.engine = engine;
    return run_engine<Branches>(GetParam(), options, 5, branch_step);
  };
  const auto ours = with(Engine::kCohort);
  const auto theirs = with(Engine::kC10d);
  expect_same(ours, theirs);
  EXPECT_EQ(ours.buckets, theirs.buckets);
  EXPECT_EQ(ours.buckets[0].front(), std::vector<size_t>{5});  // what comes last in forward comes first in backward
  expect_same(ours, with(kInline));
}

TEST_P(EngineAgreement, StaticGraphWithUnusedParametersEqualsLibTorchs) {
  const Step step = [](Reducer& reducer, torch::nn::Module& module, int rank, int64_t i) {
    auto& net = *module.as<Branches::ContainedType>();
    reducer.prepare_forward();
    const auto output = net.forward(batch_of(rank, i), /*use_left=*/rank == 0, /*use_right=*/false);
    reducer.prepare();
    output.pow(2).mean().backward();
  };
  auto ours =
      run_engine<Branches>(GetParam(), {.process_group = {}, .bucket_cap_mb = 0.0001, .static_graph = true}, 5, step);
  for (const auto& gradients : ours.gradients) {
    EXPECT_TRUE(gradients[2].defined());   // left: used on rank 0
    EXPECT_FALSE(gradients[4].defined());  // right: used nowhere
  }
  ReducerOptions theirs{.process_group = {}, .bucket_cap_mb = 0.0001, .static_graph = true};
  theirs.engine = Engine::kC10d;
  expect_same(ours, run_engine<Branches>(GetParam(), theirs, 5, step));
}

// Above two ranks the order of Gloo's sums depends on the bucket, and the reference never rebuilds its buckets.
TEST(Reducer, InlineReferenceEqualsOverlappingEngine) {
  const ReducerOptions inline_options{.process_group = {}, .engine = kInline};
  expect_same(run_engine<Mlp>(2, {}, 4, plain_step<Mlp>), run_engine<Mlp>(2, inline_options, 4, plain_step<Mlp>));
}

INSTANTIATE_TEST_SUITE_P(Ranks, EngineAgreement, testing::Values(1, 2, 3, 4));

TEST(Reducer, EqualsOneProcessOnTheJoinedBatch) {
  auto joined = seeded_net<Mlp>();
  const auto batch = at::cat({batch_of(0, 0), batch_of(1, 0)});
  joined->forward(batch).pow(2).mean().backward();
  const auto run = run_engine<Mlp>(2, {}, 1, plain_step<Mlp>);
  for (size_t i = 0; i < joined->parameters().size(); ++i) {
    EXPECT_TRUE(test::are_rounded_alike(run.gradients[0][i], joined->parameters()[i].grad(), test::kMlpSums + 2));
  }
}

TEST(Reducer, RebuildsOnceInReadyOrder) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = seeded_net<Mlp>();
    Reducer reducer(net->parameters(), {.process_group = group, .bucket_cap_mb = 0.0001});
    require(reducer.buckets() == BucketPlan{{0, 1, 2, 3, 4, 5}}, "one bucket at first");
    plain_step<Mlp>(reducer, *net, rank, 0);
    require(!reducer.has_rebuilt_buckets(), "not rebuilt during the first step");
    plain_step<Mlp>(reducer, *net, rank, 1);
    require(reducer.has_rebuilt_buckets(), "rebuilt");
    const auto rebuilt = reducer.buckets();
    require(rebuilt.front().front() >= 4, "the last layer's gradients come first");
    plain_step<Mlp>(reducer, *net, rank, 2);
    require(reducer.buckets() == rebuilt, "rebuilt once only");
  });
}

// Each rank's gradients become ready in an order of its own; the buckets follow rank 0's.
TEST(Reducer, RanksThatAreReadyInAnotherOrderAgreeOnBuckets) {
  std::vector<BucketPlan> plans(2);
  std::vector<std::vector<at::Tensor>> gradients(2);
  run_rank_threads(2, [&](int rank, const Group& group) {
    auto net = seeded_net<Branches>();
    Reducer reducer(net->parameters(), {.process_group = group, .bucket_cap_mb = 0.0001});
    for (int step = 0; step < 3; ++step) {
      reducer.prepare_forward();
      const auto hidden = net->trunk->forward(batch_of(rank, step));
      const auto earlier = (rank == 0 ? net->left : net->right)->forward(hidden);
      const auto output = earlier + (rank == 0 ? net->right : net->left)->forward(hidden);
      reducer.prepare({output});
      output.pow(2).mean().backward();
    }
    plans[rank] = reducer.buckets();
    for (const auto& parameter : net->parameters()) gradients[rank].push_back(parameter.grad());
  });
  EXPECT_EQ(plans[1], plans[0]);
  EXPECT_GT(plans[0].size(), 1u);
  for (size_t i = 0; i < gradients[0].size(); ++i) EXPECT_TRUE(at::equal(gradients[1][i], gradients[0][i])) << i;
}

// COHORT_DDP_OVERLAP for as long as it lives. Not beside threads that read the environment.
class Overlap {
 public:
  explicit Overlap(const char* value) { base::set_env("COHORT_DDP_OVERLAP", value); }
  ~Overlap() { base::unset_env("COHORT_DDP_OVERLAP"); }
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;
};

// Not seen from the gradients in the end, which are as right where everything waits for the last of them.
TEST(Reducer, LaunchesBucketsWhileBackwardStillRuns) {
  const auto body = [](int rank, const Group& group) {
    auto net = seeded_net<Mlp>();
    Reducer reducer(net->parameters(), {.process_group = group, .bucket_cap_mb = 0.0001});
    for (int step = 0; step < 2; ++step) plain_step<Mlp>(reducer, *net, rank, step);
    const auto backend = group->getBackend(c10::DeviceType::CPU);
    reducer.prepare_forward();
    const auto hidden = torch::relu(net->first->forward(batch_of(rank, 2)));
    uint64_t num_before = 0, num_at_first_layer = 0;
    hidden.register_hook([&](const at::Tensor&) { num_at_first_layer = backend->getSequenceNumberForGroup(); });
    const auto output = net->third->forward(torch::relu(net->second->forward(hidden)));
    reducer.prepare({output});
    num_before = backend->getSequenceNumberForGroup();
    output.pow(2).mean().backward();
    require(reducer.buckets().size() >= 3, c10::str("only ", reducer.buckets().size(), " buckets"));
    require(num_at_first_layer - num_before >= 2,
            "the third layer's gradients travel before the first one's are computed");
    require(backend->getSequenceNumberForGroup() - num_before == reducer.buckets().size(), "each bucket once");
  };
  const Overlap overlap("1");  // whatever cores there are
  run_rank_threads(2, body, {.make_backend = comm::make_shm_backend});
}

TEST(Reducer, ReducesAfterBackwardWhereThereIsNothingToOverlapWith) {
  const auto body = [](int rank, const Group& group) {
    auto net = seeded_net<Mlp>();
    Reducer reducer(net->parameters(), {.process_group = group, .bucket_cap_mb = 0.0001});
    for (int step = 0; step < 2; ++step) plain_step<Mlp>(reducer, *net, rank, step);
    const auto backend = group->getBackend(c10::DeviceType::CPU);
    reducer.prepare_forward();
    const auto output = net->forward(batch_of(rank, 2));
    uint64_t num_before = 0, num_at_the_end = 0;
    const auto hook = parallel::add_gradient_hook(
        net->first->weight, [&](const at::Tensor&) { num_at_the_end = backend->getSequenceNumberForGroup(); });
    reducer.prepare({output});
    num_before = backend->getSequenceNumberForGroup();
    output.pow(2).mean().backward();
    require(num_at_the_end == num_before, "backward is over but for a gradient, and none has traveled");
    require(backend->getSequenceNumberForGroup() - num_before == reducer.buckets().size(), "each bucket once");
  };
  const Overlap overlap("0");
  run_rank_threads(2, body, {.make_backend = comm::make_shm_backend});
}

TEST(Reducer, OverlapThatIsNoBooleanMessage) {
  const Overlap overlap("maybe");
  run_rank_threads(1, [](int, const Group& group) {
    auto net = seeded_net<Mlp>();
    test::require_equal(test::error_of([&] { Reducer reducer(net->parameters(), {.process_group = group}); }),
                        "[cohort] environment variable COHORT_DDP_OVERLAP=\"maybe\" must be 1 or 0");
  });
}

TEST(Reducer, GradientsSurviveEveryWayOfClearingThem) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = seeded_net<Mlp>();
    auto reference = seeded_net<Mlp>();
    Reducer reducer(net->parameters(), {.process_group = group});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int64_t step = 0; step < 6; ++step) {
      switch (step % 3) {
        case 0:
          optimizer.zero_grad(/*set_to_none=*/true);
          break;
        case 1:
          optimizer.zero_grad(/*set_to_none=*/false);
          break;
        default:
          for (auto& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
      }
      plain_step<Mlp>(reducer, *net, rank, step);
      reference->zero_grad();
      (reference->forward(batch_of(0, step)).pow(2).mean() / 2).backward();
      (reference->forward(batch_of(1, step)).pow(2).mean() / 2).backward();
      for (size_t i = 0; i < net->parameters().size(); ++i) {
        require(
            test::are_rounded_alike(net->parameters()[i].grad(), reference->parameters()[i].grad(), test::kMlpSums + 2),
            "step " + std::to_string(step) + ", parameter " + std::to_string(i));
      }
    }
  });
}

TEST(Reducer, LocalStepsAccumulateUntilAReducedOne) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = seeded_net<Mlp>();
    auto reference = seeded_net<Mlp>();
    Reducer reducer(net->parameters(), {.process_group = group});
    for (int64_t round = 0; round < 3; ++round) {
      net->zero_grad();
      reference->zero_grad();
      for (int64_t part = 0; part < 3; ++part) {
        if (part == 2) reducer.prepare();
        net->forward(batch_of(rank, 10 * round + part)).pow(2).mean().backward();
        for (int r = 0; r < 2; ++r) (reference->forward(batch_of(r, 10 * round + part)).pow(2).mean() / 2).backward();
      }
      for (size_t i = 0; i < net->parameters().size(); ++i) {
        require(test::are_rounded_alike(net->parameters()[i].grad(), reference->parameters()[i].grad(),
                                        3 * test::kMlpSums + 2),
                "sums differ");
      }
    }
  });
}

TEST(Reducer, FinalizeEndsAStepWithoutOutputs) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = seeded_net<Branches>();
    Reducer reducer(net->parameters(), {.process_group = group, .find_unused_parameters = true});
    for (int64_t step = 0; step < 3; ++step) {
      net->zero_grad();
      reducer.prepare();
      net->forward(batch_of(rank, step), rank == 0, false).sum().backward();
      reducer.finalize();
      reducer.finalize();
      require(net->left->weight.grad().defined(), "rank 1 takes part in rank 0's gradient");
      require(!net->right->weight.grad().defined(), "unused on all ranks");
    }
  });
}

TEST(Reducer, SeveralLossesShareOneStep) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = seeded_net<Branches>();
    Reducer reducer({net->left->weight, net->right->weight}, {.process_group = group});
    reducer.prepare();
    const auto x = at::full({1, 4}, rank + 1.0);
    at::matmul(x, net->left->weight).sum().backward();
    at::matmul(x, net->right->weight).sum().backward();
    expect_equal(net->left->weight.grad(), at::full({4, 4}, 1.5), "first loss");
    expect_equal(net->right->weight.grad(), at::full({4, 4}, 1.5), "second loss");
  });
}

TEST(Reducer, KeepsTheGradientOfAParameterUnusedEverywhere) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = seeded_net<Branches>();
    Reducer reducer(net->parameters(), {.process_group = group, .find_unused_parameters = true});
    for (int64_t step = 0; step < 3; ++step) {
      const bool use_left = step == 0;
      if (!use_left) {
        net->trunk->zero_grad();
        net->left->weight.mutable_grad().fill_(1.0 + rank);  // ranks differ on purpose: nothing may be reduced
      }
      reducer.prepare_forward();
      const auto output = net->forward(batch_of(rank, step), use_left, true);
      reducer.prepare({output});
      output.sum().backward();
      if (!use_left) expect_equal(net->left->weight.grad(), at::full({4, 4}, 1.0 + rank), "untouched gradient");
    }
  });
}

TEST(Reducer, ReducesSparseGradients) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto table = torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 2).sparse(true));
    auto dense = torch::ones({2}, at::requires_grad());
    Reducer reducer({table->weight, dense}, {.process_group = group, .expect_sparse_gradient = {true, false}});
    for (int step = 0; step < 3; ++step) {
      table->zero_grad();
      dense.mutable_grad() = at::Tensor();
      reducer.prepare();
      (table->forward(at::tensor({rank, 5})) * dense).sum().backward();
      const auto& grad = table->weight.grad();
      require(grad.is_sparse(), "stays sparse");
      auto expected = at::zeros({6, 2});
      expected[0].fill_(0.5);
      expected[1].fill_(0.5);
      expected[5].fill_(1);
      expect_equal(grad.to_dense(), expected, "sparse gradient");
    }
  });
}

TEST(Reducer, LeavesNoHookBehind) {
  run_rank_threads(1, [](int rank, const Group& group) {
    auto net = seeded_net<Mlp>();
    { Reducer reducer(net->parameters(), {.process_group = group}); }
    Reducer second(net->parameters(), {.process_group = group});
    plain_step<Mlp>(second, *net, rank, 0);
    plain_step<Mlp>(second, *net, rank, 1);
  });
}

// `right` is used nowhere; its bucket is left out of the reduction, and its gradient stays what it was.
TEST(Reducer, UnusedBucketsAreNotReducedIfAskedFor) {
  for (const bool is_static : {false, true}) {
    run_rank_threads(2,
                     [&](int rank, const Group& group) {
                       std::vector<uint64_t> num_operations;
                       for (const bool skips : {false, true}) {
                         auto net = seeded_net<Branches>();
                         Reducer reducer(net->parameters(), {.process_group = group,
                                                             .bucket_cap_mb = 0.00001,
                                                             .find_unused_parameters = !is_static,
                                                             .static_graph = is_static,
                                                             .skip_all_reduce_unused_params = skips});
                         const auto backend = group->getBackend(c10::DeviceType::CPU);
                         for (int step = 0; step < 4; ++step) {
                           net->zero_grad();
                           net->right->bias.mutable_grad() = torch::full({4}, rank + 1.0);
                           reducer.prepare_forward();
                           const auto begin = backend->getSequenceNumberForGroup();
                           const auto output = net->forward(batch_of(rank, step), true, false);
                           reducer.prepare({output});
                           output.sum().backward();
                           num_operations.push_back(backend->getSequenceNumberForGroup() - begin);
                           expect_equal(net->left->bias.grad(), torch::full({4}, 4.0), "used");
                           expect_equal(net->right->bias.grad(), torch::full({4}, rank + 1.0), "unused");
                         }
                       }
                       require(num_operations[7] + 2 == num_operations[3], "two buckets fewer");
                     },
                     {.make_backend = comm::make_shm_backend});
  }
}

thread_local int num_batched_copies = 0;

TEST(Reducer, BatchedCopiesAreOneForEachBucket) {
  const auto count = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    num_batched_copies += std::string(function.name()) == "aten::_foreach_copy_" ? 1 : 0;
    return nullptr;
  };
  run_rank_threads(2, [&](int rank, const Group& group) {
    const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count));
    for (const bool batches : {false, true}) {
      auto net = seeded_net<Mlp>();
      Reducer reducer(net->parameters(),
                      {.process_group = group, .bucket_cap_mb = 0.0005, .batched_grad_copy = batches});
      for (int step = 0; step < 3; ++step) {
        num_batched_copies = 0;
        plain_step<Mlp>(reducer, *net, rank, step);
        net->zero_grad();
        require(num_batched_copies == (batches ? static_cast<int>(reducer.buckets().size()) : 0), "a copy per bucket");
      }
    }
    at::removeCallback(handle);
  });
}

TEST_P(EngineAgreement, CopiesInBatchesEqualLibTorchs) {
  auto with = [&](Engine engine, bool is_view) {
    ReducerOptions options;
    options.bucket_cap_mb = 0.0005;
    options.gradient_as_bucket_view = is_view;
    options.batched_grad_copy = true;
    options.engine = engine;
    return run_engine<Mlp>(GetParam(), options, 5, plain_step<Mlp>);
  };
  for (const bool is_view : {false, true}) expect_same(with(Engine::kCohort, is_view), with(Engine::kC10d, is_view));
}

TEST_P(EngineAgreement, ListsOfCapacitiesEqualLibTorchs) {
  auto with = [&](Engine engine) {
    ReducerOptions options;
    options.bucket_cap_mb_list = {0.0001, 0.001};
    options.engine = engine;
    return run_engine<Mlp>(GetParam(), options, 5, plain_step<Mlp>);
  };
  const auto ours = with(Engine::kCohort);
  const auto theirs = with(Engine::kC10d);
  expect_same(ours, theirs);
  EXPECT_EQ(ours.buckets, theirs.buckets);
  EXPECT_EQ(ours.buckets[0].size(), 3u);
}

}  // namespace
}  // namespace cohort::ddp
