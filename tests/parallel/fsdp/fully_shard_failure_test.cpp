// What fully_shard says when something goes wrong, on ranks that are processes.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/call/purpose.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/shm/make_shm_backend.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/optim/fused_optimizers.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::fsdp {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// Where rank 1 is killed: argument 0.
COHORT_WORKER(sharded_until_a_rank_is_killed) {
  init_process_group({.backend = "shm"});
  const auto& place = test::worker_arguments().at(0);
  const auto die_at = [&](const std::string& here, int step) {
    if (here == place && step == 3 && get_rank() == 1) raise(SIGKILL);
  };
  auto net = test::seeded_net<test::Mlp>();
  auto model = fully_shard(net);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  test::print_error([&] {
    for (int step = 0;; ++step) {
      optimizer.zero_grad();
      auto output = model(test::batch_of(get_rank(), step));
      die_at("forward", step);
      output.register_hook([&](const at::Tensor&) { die_at("backward", step); });
      net->first->bias.register_hook([&](const at::Tensor&) { die_at("reduction", step); });
      output.sum().backward();
      die_at("step", step);
      optimizer.step();
    }
  });
}

class FullyShardKilled : public testing::TestWithParam<const char*> {};

TEST_P(FullyShardKilled, OthersNameTheRank) {
  const auto results =
      test::run_workers("sharded_until_a_rank_is_killed", {.world_size = 3, .arguments = {GetParam()}});
  EXPECT_EQ(results[1].exit_code, -SIGKILL);
  const std::string torn = GetParam() != std::string("step")
                               ? ""
                               : "  hint: restart all ranks from a checkpoint: a rank that dies in its optimizer's "
                                 "step can leave its slice of the shared parameters half updated\n";
  for (const int rank : {0, 2}) {
    EXPECT_EQ(results[rank].exit_code, 0) << results[rank].errors;
    EXPECT_THAT(results[rank].output,
                MatchesRegex("\\[cohort\\] all_gather_single #[0-9]+ on group \"default_pg\" failed\n  rank " +
                             std::to_string(rank) +
                             " of 3 on [^ ]+, backend shm, 24 B int64\n  caused by: rank 1 \\(pid [0-9]+ on [^ ]+\\) "
                             "(was killed by signal 9 \\(SIGKILL\\)|has ended)\n  hint: [^\n]*\n" +
                             torn));
  }
}

INSTANTIATE_TEST_SUITE_P(Places, FullyShardKilled, testing::Values("forward", "backward", "reduction", "step"));

COHORT_WORKER(writes_to_a_sharded_parameter) {
  signal(SIGSEGV, SIG_DFL);  // a sanitizer would tell of it
  init_process_group({.backend = "shm"});
  auto net = test::seeded_net<test::Mlp>();
  auto model = fully_shard(net);
  barrier();
  const at::NoGradGuard no_grad;
  if (get_rank() == 0) net->second->weight.zero_();
}

TEST(FullyShardErrors, WriteToAParameter) {
  const auto results = test::run_workers("writes_to_a_sharded_parameter");
  EXPECT_EQ(results[0].exit_code, -SIGSEGV);
  EXPECT_THAT(
      results[0].errors,
      HasSubstr("[cohort] error: a write to parameter 'second.weight', which is read-only: fully_shard keeps it once "
                "for all ranks of this host\n  hint: initialize and load parameters inside model->write(...), and "
                "build optimizers on the shards, model->parameters(), which may also be changed elementwise\n"));
}

// Maps the page that a tensor begins in; ends the process if something is mapped there.
char* take_page_of(const at::Tensor& tensor) {
  const auto page = static_cast<uintptr_t>(getpagesize());
  auto* const begin = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) / page * page);
  auto* const taken =
      mmap(begin, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (taken != begin) _exit(8);
  return static_cast<char*>(taken);
}

// After a step of backward, so that there are gradients that others may be reading. Argument 0: what a forked child does.
COHORT_WORKER(forks_with_sharded_parameters) {
  signal(SIGSEGV, SIG_DFL);  // a sanitizer would tell of it
  init_process_group({.backend = "shm"});
  auto net = test::seeded_net<test::Mlp>();
  auto model = fully_shard(net);
  model(test::batch_of(get_rank(), 0)).sum().backward();
  const auto copy = net->second->weight.detach().clone();
  const auto& what = test::worker_arguments().at(0);
  const at::NoGradGuard no_grad;
  const auto child = fork();
  if (child == 0) {
    double sum = 0;
    if (what == "reads") sum = net->second->weight.sum().item<double>();
    if (what == "steps") model->parameters()[2].add_(1);
    if (what == "reads a copy") sum = copy.sum().item<double>();
    if (what == "lets go") {
      // What has taken the parameters' addresses meanwhile must not go with them.
      char* const others[] = {take_page_of(net->second->weight), take_page_of(model->parameters()[2])};
      model = nullptr;
      net = nullptr;
      for (auto* const other : others) sum += * other = 1;
    }
    if (what == "executes") execlp("true", "true", nullptr);
    _exit(sum == 0 ? 9 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::cout << (WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status)) << std::flush;
  REQUIRE(at::equal(net->second->weight, copy));
  barrier();
  destroy_process_group();
}

TEST(FullyShardErrors, ForkedChildrenHaveNoParametersMessage) {
  const std::string text =
      "[cohort] error: a forked process has no parameter 'second.weight': fully_shard keeps it for the ranks of this "
      "host, but not for the processes that they fork\n  hint: give the child a copy that was made before the fork: "
      "parameter.detach().clone()\n";
  for (const std::string what : {"reads", "steps", "reads a copy", "lets go", "executes"}) {
    SCOPED_TRACE(what);
    const auto results = test::run_workers("forks_with_sharded_parameters", {.arguments = {what}});
    results.expect_success();
    const bool is_access = what == "reads" || what == "steps";
    for (const int rank : {0, 1}) {
      EXPECT_EQ(results[rank].output, is_access ? std::to_string(-SIGSEGV) : "0");
      EXPECT_EQ(results[rank].errors.substr(0, text.size()), is_access ? text : "");
    }
  }
}

// Arguments: the optimizer, whose parameters it has, and where the whole ones are.
COHORT_WORKER(optimizes_the_modules_own_parameters) {
  signal(SIGSEGV, SIG_DFL);  // a sanitizer would tell of it
  init_process_group({.backend = "shm"});
  auto net = test::seeded_net<test::Mlp>();
  const bool is_apart = test::worker_arguments().at(2) == "gathered";
  auto model = fully_shard(net, {.one_memory = !is_apart});
  const bool is_whole = test::worker_arguments().at(1) == "whole";
  const auto parameters = is_whole ? net->parameters() : model->parameters();
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  const auto& kind = test::worker_arguments().at(0);
  if (kind == "SGD") optimizer = std::make_unique<torch::optim::SGD>(parameters, 0.1);
  if (kind == "Adam") optimizer = std::make_unique<torch::optim::Adam>(parameters);
  if (kind == "AdamW") optimizer = std::make_unique<torch::optim::AdamW>(parameters);
  if (kind == "fused AdamW") optimizer = std::make_unique<cohort::optim::AdamW>(parameters);
  const auto before = model->parameters()[1].detach().clone();
  test::print_error([&] {
    for (int step = 0; step < 3; ++step) {
      optimizer->zero_grad();
      model(test::batch_of(get_rank(), step)).sum().backward();
      optimizer->step();
    }
  });
  std::cout << (at::equal(model->parameters()[1], before) ? "as before" : "trained");
  model = nullptr;
  for (const auto& parameter : net->parameters()) REQUIRE(!parameter.grad().defined());
  destroy_process_group();
}

TEST(FullyShardErrors, OptimizerOfTheFullParametersMessage) {
  const auto output_of = [](const std::string& kind, const std::string& whose, const std::string& place) {
    const auto results = test::run_workers("optimizes_the_modules_own_parameters", {.arguments = {kind, whose, place}});
    results.expect_success();
    return results[0].output;
  };
  const std::string text =
      "[cohort] fully_shard: the gradient of parameter 'first.weight' is in this rank's shard, but something has read "
      "it from the full parameter\n"
      "  hint: build optimizers on parameters() of the wrapper, and clip the gradients of these. An optimizer on the "
      "parameters of the module inside trains nothing\n";
  // Of those that look at the parameter first, which is gathered for passes alone.
  const std::string of_value =
      "[cohort] Parameter 'first.weight' is sharded: its full value is there only while the forward or backward pass "
      "of its fully_shard module runs. To read it elsewhere, call unshard() of that module before, and reshard() "
      "afterwards. Build optimizers on parameters() of the wrapper, which returns this rank's shards. Call forward on "
      "the wrapper, not on the module inside.\n";
  for (const std::string kind : {"SGD", "Adam", "fused AdamW"}) {
    for (const std::string place : {"one memory", "gathered"}) {
      SCOPED_TRACE(kind + ", " + place);
      EXPECT_EQ(output_of(kind, "whole", place),
                (kind != "Adam" && place == "gathered" ? of_value : text) + "as before");
      EXPECT_EQ(output_of(kind, "shards", place), "(no error)\ntrained");
    }
  }
}

// It writes the parameter before it looks at the gradient.
TEST(FullyShardErrors, OptimizerThatLetsFullParametersDecayMessage) {
  const auto results =
      test::run_workers("optimizes_the_modules_own_parameters", {.arguments = {"AdamW", "whole", "one memory"}});
  for (const int rank : {0, 1}) {
    EXPECT_EQ(results[rank].exit_code, -SIGSEGV);
    EXPECT_THAT(results[rank].errors,
                HasSubstr("[cohort] error: a write to parameter 'first.weight', which is read-only: fully_shard keeps "
                          "it once for all ranks of this host\n"
                          "  hint: initialize and load parameters inside model->write(...), and build optimizers on "
                          "the shards, model->parameters(), which may also be changed elementwise\n"));
  }
}

// What says that gradients are elsewhere is gone before gradients come, whichever pass they are of.
TEST(FullyShardErrors, SeveralBackwardPassesAddUp) {
  for (const bool one_memory : {true, false}) {
    const auto on_ranks = [one_memory](int, const Group& group) {
      const auto sum_of = [&](int num_times, bool is_whole) {
        auto net = test::seeded_net<test::Mlp>();
        auto model = fully_shard(net, {.process_group = group, .one_memory = one_memory});
        const auto first = model(test::batch_of(group->getRank(), 1)).sum();
        const auto second = model(test::batch_of(group->getRank(), 2)).sum();
        if (is_whole) {
          (first + second).mul(num_times).backward();
        } else {
          for (int i = 1; i < num_times; ++i) first.backward({}, /*keep_graph=*/true);
          first.backward();
          for (int i = 1; i < num_times; ++i) second.backward({}, /*keep_graph=*/true);
          second.backward();
        }
        std::vector<at::Tensor> gradients;
        for (const auto& parameter : model->parameters()) gradients.push_back(parameter.grad().clone());
        return gradients;
      };
      const auto expected = sum_of(2, true);
      const auto found = sum_of(2, false);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-4, 1e-5)) << i;
    };
    test::run_rank_threads(2, on_ranks, {.make_backend = comm::make_shm_backend});
  }
}

COHORT_WORKER(calls_the_module_inside) {
  init_process_group({.backend = "shm"});
  auto net = test::seeded_net<test::Mlp>();
  auto model = fully_shard(net);
  test::print_error([&] { net->forward(test::batch_of(get_rank(), 0)).sum().backward(); });
  destroy_process_group();
}

TEST(FullyShardErrors, ModuleInsideIsCalledMessage) {
  const auto results = test::run_workers("calls_the_module_inside");
  results.expect_success();
  for (const int rank : {0, 1}) {
    EXPECT_THAT(
        results[rank].output,
        MatchesRegex("\\[cohort\\] fully_shard: parameter '(first|second|third)\\.(weight|bias)' has a gradient, but "
                     "no forward pass of the wrapper has run: the backward pass belongs to a forward pass of the "
                     "module inside\n  hint: call the wrapper instead: model\\(x\\) or model->forward\\(x\\)\n"));
  }
}

// One rank has a batch more.
COHORT_WORKER(shards_unevenly) {
  init_process_group({.backend = "shm"});
  auto net = test::seeded_net<test::Mlp>();
  auto model = fully_shard(net);
  test::print_error([&] {
    for (int step = 0; step < (get_rank() == 0 ? 3 : 2); ++step) model(test::batch_of(0, step)).sum().backward();
    barrier();
  });
}

TEST(FullyShardErrors, RanksWithDifferentNumbersOfBatches) {
  const auto results = test::run_workers("shards_unevenly");
  for (const int rank : {0, 1}) {
    EXPECT_THAT(results[rank].output, HasSubstr("  caused by: rank 0 calls all_gather"));
    EXPECT_THAT(results[rank].output,
                HasSubstr("which is FullySharded's meeting before a forward pass or at the end of a "
                          "backward pass\n  caused by: rank 1 calls barrier\n"));
    EXPECT_THAT(results[rank].output, HasSubstr(comm::kUnevenStepsHint));
  }
}

// Each rank begins with another one of two models.
COHORT_WORKER(calls_roots_in_another_order) {
  init_process_group({.backend = "shm"});
  auto first = fully_shard(test::seeded_net<test::Mlp>());
  auto second = fully_shard(test::seeded_net<test::Mlp>());
  test::print_error([&] { (get_rank() == 0 ? first : second)(test::batch_of(0, 0)); });
}

TEST(FullyShardErrors, RootsInAnotherOrder) {
  const auto results = test::run_workers("calls_roots_in_another_order");
  for (const int rank : {0, 1}) {
    const auto peer = std::to_string(1 - rank);
    EXPECT_EQ(results[rank].output,
              "[cohort] FullySharded: the ranks do not take the same steps\n  caused by: rank " + std::to_string(rank) +
                  " begins a forward pass\n  caused by: rank " + peer +
                  " begins a forward pass of another fully_shard module\n  hint: " + comm::kUnevenStepsHint + "\n");
  }
}

COHORT_WORKER(goes_on_after_an_exception_in_backward) {
  init_process_group({.backend = "shm"});
  auto model = fully_shard(test::seeded_net<test::Mlp>());
  const auto pass = [&] { return model(test::batch_of(get_rank(), 0)).sum(); };
  auto bad = pass();
  bool throws = true;
  model->module().first->bias.register_hook(
      [&](const at::Tensor&) { TORCH_CHECK(!std::exchange(throws, false), "thrown on purpose"); });
  auto good = pass();
  test::print_error([&] { bad.backward(); });
  test::print_error([&] { good.backward(); });
  pass().backward();
  std::cout << (model->parameters().front().grad().defined() ? "reduced" : "lost") << "\n";
  destroy_process_group();
}

TEST(FullyShardErrors, BackwardAfterOneThatWasThrown) {
  const auto results = test::run_workers("goes_on_after_an_exception_in_backward");
  results.expect_success();
  for (const int rank : {0, 1}) {
    EXPECT_EQ(results[rank].output,
              "thrown on purpose\n[cohort] An exception has ended the last backward pass of a fully_shard module. "
              "Before another "
              "backward pass, call reset_iter_state() or begin a forward pass: both drop what it has left behind.\n"
              "reduced\n");
  }
}

COHORT_WORKER(clips_the_modules_own_parameters) {
  init_process_group({.backend = "shm"});
  auto net = test::seeded_net<test::Mlp>();
  auto model = fully_shard(net, {.one_memory = test::worker_arguments().at(0) == "one memory"});
  model(test::batch_of(get_rank(), 0)).sum().backward();
  test::print_error([&] { nn::utils::clip_grad_norm_(net->parameters(), 1.0); });
  test::print_error([&] { nn::utils::clip_grad_value_(net->parameters(), 1.0); });
  barrier();
  destroy_process_group();
}

TEST(FullyShardErrors, ClippingOfTheFullParameters) {
  const std::string text =
      "[cohort] a parameter of shape [16, 8] has been sharded by fully_shard: its gradient is in its shards. Pass "
      "parameters() of the wrapper, not the inner module's parameters.\n";
  for (const std::string kind : {"one memory", "gathered"}) {
    const auto results = test::run_workers("clips_the_modules_own_parameters", {.arguments = {kind}});
    results.expect_success();
    EXPECT_EQ(results[0].output, text + text);
  }
}

COHORT_WORKER(shards_wrongly) {
  init_process_group({.backend = "shm"});
  const int rank = get_rank();
  const auto print = [&](const std::function<void()>& fn) {
    if (rank == 0)
      std::cout << test::error_of(fn) << "\n---\n" << std::flush;
    else
      (void)test::error_of(fn);
  };
  struct Scalar : torch::nn::Module {
    Scalar() { register_parameter("scale", at::ones({})); }
    at::Tensor forward(at::Tensor x) { return x; }
  };
  print([] { fully_shard(std::make_shared<Scalar>()); });
  struct Transposed : torch::nn::Module {
    Transposed() { register_parameter("matrix", at::ones({2, 3}).t()); }
    at::Tensor forward(at::Tensor x) { return x; }
  };
  print([] { fully_shard(std::make_shared<Transposed>()); });
  print([&] { fully_shard(torch::nn::Linear(2, rank == 0 ? 3 : 4)); });
  auto net = test::seeded_net<test::Mlp>();
  auto model = fully_shard(net);
  print([&] { fully_shard(net); });
  print([&] { model->clone(); });
  net->first->weight.set_data(at::zeros_like(net->first->weight));
  print([&] { model(test::batch_of(0, 0)); });
}

TEST(FullyShardErrors, Messages) {
  const auto results = test::run_workers("shards_wrongly");
  results.expect_success();
  EXPECT_EQ(
      results[0].output,
      "fully_shard doesn't support scalar parameters. Change scale to a 1D tensor with numel equal to 1.\n---\n"
      "FSDP does not support non-contiguous parameters yet: matrix.shape=[3, 2] matrix.stride()=[1, 3]\n---\n"
      "[cohort] fully_shard: nothing was sharded, as the ranks differ: parameter 0 is weight Float [3, 2] on rank 0, "
      "but weight Float "
      "[4, 2] on rank 1\n---\n"
      "Parameter 'first.weight' is shared with a parameter already managed by another FSDP group. For shared/tied "
      "parameters, shard the modules that share it by one call, in the same FSDP group.\n---\n"
      "FSDP does not support deepcopy. Please use state dict for serialization.\n---\n"
      "[cohort] Parameter 'first.weight' is no longer where fully_shard has put it: to(), set_data() or a new tensor "
      "in its "
      "place has moved it. Convert a module before fully_shard, and write to its parameters with write().\n---\n");
}

}  // namespace
}  // namespace cohort::fsdp
