// What users of ddp::Reducer read, who have parameters and its methods, but no module and no keyword arguments.
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/ddp/reducer.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::ddp {
namespace {

using test::run_rank_threads;

constexpr const char* kNamesHint = ". Set ReducerOptions::parameter_names to see names here";

std::string on_rank(int rank, const std::string& what, const std::string& cause, const std::string& hint) {
  return "[cohort] ddp::Reducer: " + what + "\n  rank " + std::to_string(rank) + " of 2\n  caused by: " + cause +
         "\n  hint: " + hint;
}

// Two parameters, of which a loss may leave out either.
struct Pair {
  at::Tensor a = torch::ones({2}, at::requires_grad());
  at::Tensor b = torch::ones({3}, at::requires_grad());
  std::vector<at::Tensor> both() const { return {a, b}; }
};

TEST(ReducerMessages, UnfinishedStepMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Pair pair, other;
    const std::string cause = "1 of 2 parameters got no gradient: 1";
    const std::string hint =
        "a step ends when every parameter has got its gradient. Call backward() on losses that use all of them; or, if "
        "a "
        "step may leave some out, set ReducerOptions::find_unused_parameters and call finalize() after the last "
        "backward() of "
        "each step";
    Reducer reducer(pair.both(), {.process_group = group});
    reducer.prepare();
    pair.a.sum().backward();
    REQUIRE_EQUAL(test::error_of([&] { reducer.finalize(); }),
                  on_rank(rank, "finalize() cannot end the step", cause, hint + kNamesHint));
    const std::string begin = "prepare() cannot begin a step, because the step before is not finished";
    REQUIRE_EQUAL(test::error_of([&] { reducer.prepare(); }), on_rank(rank, begin, cause, hint + kNamesHint));

    Reducer named(other.both(), {.process_group = group, .parameter_names = {"density", "pressure"}});
    named.prepare();
    other.b.sum().backward();
    REQUIRE_EQUAL(test::error_of([&] { named.prepare_forward(); }),
                  on_rank(rank, begin, "1 of 2 parameters got no gradient: 0 \"density\"", hint));
  });
}

TEST(ReducerMessages, UnfinishedStepWithSearchMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Pair pair;
    Reducer reducer(pair.both(), {.process_group = group, .find_unused_parameters = true});
    reducer.prepare({(pair.a.sum() + pair.b.sum())});
    pair.a.sum().backward();
    REQUIRE_EQUAL(
        test::error_of([&] { reducer.prepare(); }),
        on_rank(rank, "prepare() cannot begin a step, because the step before is not finished",
                "1 of 2 parameters got no gradient: 1",
                std::string(
                    "the tensors given to prepare() depend on these parameters, but the loss does not. Call finalize() "
                    "after the last backward() of each step, which counts parameters without a gradient as unused; or "
                    "give prepare() only tensors that the loss is computed from") +
                    kNamesHint));
    reducer.finalize();  // the way out
    reducer.prepare();
    pair.a.sum().backward();
    reducer.finalize();
  });
}

TEST(ReducerMessages, StaticGraphThatChangesMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Pair fewer, more;
    const auto step = [](Reducer& reducer, const at::Tensor& loss) {
      reducer.prepare();
      loss.backward();
    };
    Reducer shrinks(fewer.both(), {.process_group = group, .static_graph = true});
    step(shrinks, fewer.a.sum() + fewer.b.sum());
    step(shrinks, fewer.a.sum());
    REQUIRE_EQUAL(
        test::error_of([&] { shrinks.prepare(); }),
        on_rank(rank, "prepare() cannot begin a step, because the step before is not finished",
                "1 of 2 parameters got no gradient: 1",
                std::string("ReducerOptions::static_graph promises that every step uses the parameters of the first "
                            "one. Leave it off, and set find_unused_parameters if some steps use fewer") +
                    kNamesHint));
    Reducer grows(more.both(), {.process_group = group, .static_graph = true});
    step(grows, more.a.sum());
    REQUIRE_EQUAL(test::error_of([&] { step(grows, more.b.sum()); }),
                  on_rank(rank, "a step differs from the first one, which ReducerOptions::static_graph rules out",
                          "parameter 1 got more gradients than in the first step",
                          std::string("leave static_graph off, and set find_unused_parameters if some steps use fewer "
                                      "parameters") +
                              kNamesHint));
  });
}

TEST(ReducerMessages, SecondGradientMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Pair pair, searched;
    const std::string what = "backward() has computed a second gradient of a parameter in one step";
    const std::string hint =
        "a step takes one gradient per parameter. Call prepare() just before the last backward() of a step: the "
        "gradients of "
        "earlier ones wait on their rank and are added to it; or add the losses and call backward() once. If every "
        "step has "
        "the same graph, ReducerOptions::static_graph allows several gradients";
    Reducer reducer(pair.both(), {.process_group = group, .parameter_names = {"density", "pressure"}});
    reducer.prepare();
    pair.a.sum().backward();
    REQUIRE_EQUAL(test::error_of([&] { pair.a.sum().backward(); }),
                  on_rank(rank, what, "parameter 0 \"density\" was ready before", hint));
    Reducer searching(searched.both(), {.process_group = group, .find_unused_parameters = true});
    searching.prepare({searched.b.sum()});
    REQUIRE_EQUAL(
        test::error_of([&] { searched.a.sum().backward(); }),
        on_rank(rank, what, "parameter 0 was ready before",
                hint +
                    ". A parameter also counts as ready if the tensors given to prepare() do not depend on it: give "
                    "it all tensors that the loss is computed from, or none and call finalize()" +
                    kNamesHint));
  });
}

TEST(ReducerMessages, DifferentParametersMessage) {
  const std::string what = "the ranks were given different parameters";
  const std::string hint =
      "give the constructor the same number of parameters on every rank, with the same sizes and strides and in the "
      "same order";
  run_rank_threads(2, [&](int rank, const Group& group) {
    const auto text =
        test::error_of([&] { Reducer({torch::ones({2 + rank}, at::requires_grad())}, {.process_group = group}); });
    if (rank == 0) return;  // the first rank is what the others are compared with
    REQUIRE_EQUAL(
        text, on_rank(1, what,
                      "[1]: params[0] in this process with sizes [3] appears not to match sizes of the same param in "
                      "process 0.",
                      hint));
  });
  run_rank_threads(2, [&](int rank, const Group& group) {
    Pair pair;
    const auto text = test::error_of(
        [&] { Reducer reducer(rank == 0 ? pair.both() : std::vector<at::Tensor>{pair.a}, {.process_group = group}); });
    REQUIRE_EQUAL(text, on_rank(rank, what,
                                rank == 0 ? "Rank 0 has 2 params, while rank 1 has inconsistent 1 params."
                                          : "Rank 1 has 1 params, while rank 0 has inconsistent 2 params.",
                                hint));
  });
}

TEST(ReducerMessages, BadArgumentsMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    const auto leaf = torch::ones({1}, at::requires_grad());
    REQUIRE_EQUAL(test::error_of([&] { Reducer({}, {.process_group = group}); }),
                  "[cohort] ddp::Reducer needs at least one parameter");
    REQUIRE_EQUAL(test::error_of([&] { Reducer({torch::ones({1})}, {.process_group = group}); }),
                  "[cohort] ddp::Reducer: parameter 0 must be a leaf tensor that requires a gradient");
    REQUIRE_EQUAL(test::error_of([&] { Reducer({leaf}, {.process_group = group, .bucket_cap_mb = 0.0}); }),
                  "[cohort] ddp::ReducerOptions: bucket_cap_mb must be positive, got 0");
    REQUIRE_EQUAL(test::error_of([&] {
                    Reducer({leaf}, {.process_group = group, .parameter_names = {"a", "b"}});
                  }),
                  "[cohort] ddp::ReducerOptions: parameter_names needs one name per parameter, 1, got 2");
    REQUIRE_EQUAL(test::error_of([&] {
                    Reducer({leaf}, {.process_group = group, .expect_sparse_gradient = {true, false}});
                  }),
                  "[cohort] ddp::ReducerOptions: expect_sparse_gradient needs one flag per parameter, 1, got 2");
  });
}

TEST(ReducerMessages, SparseGradientsThatWereNotAnnouncedMessage) {
  run_rank_threads(2, [](int, const Group& group) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    Reducer reducer({table->weight}, {.process_group = group});
    reducer.prepare();
    REQUIRE_EQUAL(
        test::error_of([&] { table->forward(at::tensor({1})).sum().backward(); }),
        "[cohort] a parameter of sizes [4, 2] has a sparse gradient that was not announced; give ddp::Reducer a flag "
        "for it in "
        "ReducerOptions::expect_sparse_gradient (DistributedDataParallel knows those of torch::nn::Embedding and "
        "EmbeddingBag only)");
    const auto dense = torch::ones({2}, at::requires_grad());
    Reducer expecting({dense}, {.process_group = group, .expect_sparse_gradient = {true}});
    expecting.prepare();
    REQUIRE_EQUAL(test::error_of([&] { dense.sum().backward(); }),
                  "Expected variable to have sparse gradient. (ReducerOptions::expect_sparse_gradient "
                  "announces one for a "
                  "parameter of sizes [2], whose gradient is dense.)");
  });
}

// The same mistakes under DistributedDataParallel: PyTorch's wording, which its users know.
TEST(ReducerMessages, UsersOfTheWrapperReadPyTorchsWordsMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    test::Branches net;
    DistributedDataParallel ddp(net, {.process_group = group});
    const auto x = torch::ones({1, 8});
    ddp(x, true, false).sum().backward();
    const auto number = std::to_string(rank);
    REQUIRE_EQUAL(
        test::error_of([&] { ddp(x, true, true); }),
        "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates "
        "that your module has parameters that were not used in producing loss. You can enable unused parameter "
        "detection by passing the keyword argument `find_unused_parameters=True` to `DistributedDataParallel`, and by "
        "making sure all `forward` function outputs participate in calculating loss.\n"
        "Parameters which did not receive grad for rank " +
            number +
            ": right.weight, right.bias\n"
            "Parameter indices which did not receive grad for rank " +
            number + ": 4 5");
  });
}

TEST(ReducerMessages, DifferentModelsUnderTheWrapperMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    test::Mlp net(rank == 0 ? 16 : 12);
    const auto text =
        test::error_of([&] { DistributedDataParallel ddp(net, {.process_group = group, .init_sync = true}); });
    // It goes on to broadcast its weights, which nobody receives: with backend "shm" a warning at its end says so.
    if (rank == 0) return;
    REQUIRE_EQUAL(
        text,
        "[1]: params[0] in this process with sizes [12, 8] appears not to match sizes of the same param in process "
        "0.");
  });
  run_rank_threads(2, [](int rank, const Group& group) {
    torch::nn::Linear net(torch::nn::LinearOptions(2, 2).bias(rank == 0));
    REQUIRE_EQUAL(test::error_of([&] { DistributedDataParallel ddp(net, {.process_group = group}); }),
                  rank == 0 ? "DDP expects same model across all ranks, but Rank 0 has 2 params, while rank 1 has "
                              "inconsistent 1 params."
                            : "DDP expects same model across all ranks, but Rank 1 has 1 params, while rank 0 has "
                              "inconsistent 2 params.");
  });
}

}  // namespace
}  // namespace cohort::ddp
