#include "cohort/comm/group/process_group.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <filesystem>
#include <thread>

#include "cohort/base/machine/cpu.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/comm/registry/backend_registry.h"
#include "tests/support/marks.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"
#include "tests/support/temporary_folder.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_workers;
using testing::HasSubstr;

template <class Fn>
std::string value_error_of(Fn fn) {
  try {
    fn();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "(no error)";
}

COHORT_WORKER(queries) {
  REQUIRE(!is_initialized());
  const auto group = init_process_group("gloo");
  REQUIRE(group && group == default_group());
  const int rank = std::stoi(getenv("RANK"));
  REQUIRE(is_initialized());
  REQUIRE(get_rank() == rank);
  REQUIRE(get_world_size() == 3);
  REQUIRE(get_backend() == "gloo");
  REQUIRE(get_node_local_rank() == rank);
  REQUIRE((get_process_group_ranks() == std::vector<int>{0, 1, 2}));
  barrier();
  destroy_process_group();
  REQUIRE(!is_initialized());
}

TEST(ProcessGroup, KnowsRanksSizesAndBackend) { run_workers("queries", {.world_size = 3}).expect_success(); }

COHORT_WORKER(init_again) {
  init_process_group("gloo");
  REQUIRE(value_error_of([] { init_process_group("gloo"); }) ==
          "trying to initialize the default process group twice!");
  auto tensor = at::ones({4});
  all_reduce(tensor);
  destroy_process_group();
  const int rank = std::stoi(getenv("RANK"));
  const auto path = std::string(getenv("STORE_FILE"));
  init_process_group({.init_method = "file://" + path, .world_size = 2, .rank = rank});
  all_reduce(tensor);
  REQUIRE(tensor[0].item<float>() == 4);
  destroy_process_group();
}

TEST(ProcessGroup, CanBeInitializedAgainAfterDestroy) {
  char folder[] = "/tmp/cohort-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  run_workers("init_again", {.environment = {{"STORE_FILE", std::string(folder) + "/store"}}}).expect_success();
  std::filesystem::remove_all(folder);
}

// Arguments: a file per life of the group. A Python rank that makes the same groups is in tests/e2e/comm/mixed_start_test.py.
COHORT_WORKER(groups_of_several_lives) {
  for (const auto& path : test::worker_arguments()) {
    const InitOptions options{.backend = "gloo",
                              .init_method = "file://" + path,
                              .timeout = std::chrono::seconds(120),
                              .world_size = 2,
                              .rank = std::stoi(getenv("RANK"))};
    init_process_group(options);
    const auto local = new_group({0, 1}, {.use_local_synchronization = true});
    const auto first = new_group({0, 1});
    auto ones = at::ones({1});
    all_reduce(ones, {.group = first});
    destroy_process_group(first);
    const auto second = new_group({1, 0});
    for (const auto& group : {default_group(), local, second}) {
      all_reduce(ones, {.group = group});
      std::cout << group->getGroupName() << " ";
      REQUIRE(c10d::resolve_process_group(group->getGroupName()) == group);
    }
    std::cout << ones.item<float>() << "\n" << std::flush;
    destroy_process_group();
    REQUIRE(error_of([] { c10d::resolve_process_group("2"); }).find("Could not resolve the process group") == 0);
  }
}

// PyTorch's names: numbers, and of groups by local synchronization the SHA-1 of "0_1_1".
TEST(ProcessGroup, NamesBeginAnewAfterDestroy) {
  const test::TemporaryFolder folder;
  const auto results = run_workers("groups_of_several_lives", {.arguments = {folder / "first", folder / "second"}});
  results.expect_success();
  const std::string names = "0 4a2ad14e7181d5235b64cf37fcd715cb5ce5c8e7 2 16\n";
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(results[rank].output, names + names);
}

// Argument: the init_method. Says which of LibTorch's two servers the rank believes to hold the store.
COHORT_WORKER(tells_the_stores_server) {
  init_process_group({.backend = "gloo", .init_method = test::worker_arguments().at(0)});
  auto store = default_group()->getStore();
  while (const auto prefix = c10::dynamic_intrusive_pointer_cast<c10d::PrefixStore>(store)) {
    store = prefix->getUnderlyingStore();
  }
  const auto tcp = c10::dynamic_intrusive_pointer_cast<c10d::TCPStore>(store);
  REQUIRE(tcp);
  std::cout << (tcp->isLibUvBackend() ? "libuv" : "older") << "\n" << std::flush;
  barrier();
}

TEST(ProcessGroup, VariableOrUrlChoosesTheStoresServer) {
  const auto server = [](const std::string& variable, const std::string& url) {
    const auto results =
        run_workers("tells_the_stores_server", {.environment = {{"USE_LIBUV", variable}}, .arguments = {url}});
    results.expect_success();
    EXPECT_EQ(results[0].output, results[1].output);
    return results[0].output;
  };
  EXPECT_EQ(server("1", "env://"), "libuv\n");
  EXPECT_EQ(server("0", "env://"), "older\n");
  EXPECT_EQ(server("0", "env://?use_libuv=1"), "libuv\n");
}

COHORT_WORKER(longest_time) {
  using std::chrono::milliseconds;
  const int rank = std::stoi(getenv("RANK"));
  const auto late = [&] {
    if (rank == 1) std::this_thread::sleep_for(milliseconds(50));
  };
  late();
  init_process_group({.backend = test::worker_arguments()[0], .timeout = milliseconds::max()});
  late();
  const auto group = new_group({0, 1}, {.timeout = milliseconds::max()});
  set_pg_timeout(milliseconds::max(), group);
  late();
  const auto tensor = at::full({4}, rank + 1.0);
  all_reduce(tensor, {.group = group});
  REQUIRE(tensor[3].item<double>() == 3);
  late();
  REQUIRE(all_reduce(tensor, {.async_op = true})->wait(milliseconds::max()));
  REQUIRE(tensor[3].item<double>() == 6);
  late();
  const auto word = at::full({2}, rank + 5.0);
  REQUIRE((rank == 1 ? isend(word, 0) : irecv(word, 1))->wait(milliseconds::max()));
  REQUIRE(word[1].item<double>() == 6);
  late();
  barrier({.timeout = milliseconds::max()});
  late();
  monitored_barrier({.timeout = milliseconds::max()});
}

BACKEND(both)
TEST(ProcessGroup, TheLongestTimeIsNoLimit) {
  run_workers("longest_time", {.arguments = {test::backend_of_tests()}}).expect_success();
  run_workers("longest_time", {.environment = {{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}}, .arguments = {"gloo"}})
      .expect_success();
}

COHORT_WORKER(tcp_url) {
  const std::string url = std::string("tcp://127.0.0.1:") + getenv("MASTER_PORT");
  const int rank = std::stoi(getenv("RANK"));
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  init_process_group(
      {.backend = "cpu:gloo", .init_method = url, .timeout = std::chrono::seconds(100), .world_size = 2, .rank = rank});
  auto tensor = at::full({1}, rank);
  all_reduce(tensor);
  REQUIRE(tensor.item<int64_t>() == 1);
}

TEST(ProcessGroup, MeetsByTcpUrl) { run_workers("tcp_url").expect_success(); }

TEST(ProcessGroup, TakesAGivenStore) {
  const auto group = init_process_group({.world_size = 1, .rank = 0, .store = c10::make_intrusive<c10d::HashStore>()});
  EXPECT_EQ(group, default_group());
  EXPECT_EQ(group->getBackend(c10::DeviceType::CPU)->getBackendOptions()->timeout, std::chrono::minutes(30));
  auto tensor = at::ones({2});
  all_reduce(tensor, {.group = group});
  EXPECT_EQ(tensor[1].item<float>(), 1);
  EXPECT_EQ(get_world_size(), 1);
  destroy_process_group();
}

TEST(ProcessGroup, RefusesBadOptionsMessage) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_EQ(value_error_of([&] { init_process_group({.init_method = "env://", .store = store}); }),
            "Cannot specify both init_method and store.");
  EXPECT_EQ(value_error_of([&] { init_process_group({.rank = 0, .store = store}); }),
            "world_size must be positive if using store");
  EXPECT_EQ(value_error_of([&] { init_process_group({.world_size = 2, .store = store}); }),
            "rank must be non-negative if using store");
  EXPECT_EQ(value_error_of([&] { init_process_group({.world_size = 2, .rank = 2, .store = store}); }),
            "[cohort] rank must be from 0 to 1 (world_size=2), got 2");
  EXPECT_EQ(
      value_error_of([] { init_process_group("mpi"); }),
      "[cohort] Unknown backend \"mpi\" (known: gloo, nccl, shm, cohort; others can be added by register_backend)");
}

TEST(ProcessGroup, CollectiveBeforeInitMessage) {
  const std::string expected =
      "Default process group has not been initialized, please make sure to call init_process_group.";
  EXPECT_EQ(value_error_of([] { all_reduce(at::ones({1})); }), expected);
  EXPECT_EQ(value_error_of([] { get_rank(); }), expected);
  EXPECT_EQ(value_error_of([] { destroy_process_group(); }), expected);
  EXPECT_EQ(value_error_of([] { new_group({0}); }), expected);
}

// It has no name even for c10d.
class SilentBackend final : public c10d::Backend {
 public:
  explicit SilentBackend(const comm::BackendRequest& request) : Backend(request.rank, request.world_size) {}
};

COHORT_WORKER(registered_backend) {
  const auto create = [](const comm::BackendRequest& request) { return c10::make_intrusive<SilentBackend>(request); };
  register_backend("silent", create, {c10::DeviceType::CPU});
  REQUIRE(value_error_of([&] { register_backend("silent", create); }) ==
          "[cohort] backend \"silent\" is already registered");
  init_process_group("silent");
  REQUIRE(get_backend() == "silent");
  REQUIRE(get_backend_config() == "cpu:silent");
  REQUIRE(!comm::has_shared_memory());
  REQUIRE(value_error_of([] { monitored_barrier(); }) == "monitored_barrier is only implemented for GLOO backend.");
  const auto half = split_group({}, {{0}, {1}});
  REQUIRE(get_backend(half) == "silent");
  const auto ours = new_group({}, {.backend = "gloo"});
  barrier({.group = ours});
  destroy_process_group();
}

TEST(ProcessGroup, RegisteredBackendIsOnlyWhatItSaysMessage) { run_workers("registered_backend").expect_success(); }

COHORT_WORKER(subgroups) {
  init_process_group("gloo");
  const int rank = get_rank();
  const auto outer = new_group({2, 0});
  const auto all = new_group();
  const auto single = new_group({1}, {.timeout = std::chrono::seconds(50), .group_desc = "solo"});
  auto tensor = at::full({1}, rank + 1);
  if (rank == 1) {
    REQUIRE(!is_member(outer));
    REQUIRE(get_rank(outer) == -1);
    REQUIRE(get_world_size(outer) == -1);
    REQUIRE(!all_reduce(tensor, {.group = outer}));
    REQUIRE(tensor.item<int64_t>() == 2);
    REQUIRE(get_rank(single) == 0);
  } else {
    REQUIRE(is_member(outer));
    REQUIRE(get_rank(outer) == rank / 2);
    REQUIRE(get_group_rank(outer, 2) == 1);
    REQUIRE(get_global_rank(outer, 1) == 2);
    all_reduce(tensor, {.group = outer});
    REQUIRE(tensor.item<int64_t>() == 4);
    broadcast(tensor.fill_(rank), /*src=*/2, {.group = outer});
    REQUIRE(tensor.item<int64_t>() == 2);
    REQUIRE(value_error_of([&] { broadcast(tensor, 1, {.group = outer}); }) == "Global rank 1 is not part of group 1");
    destroy_process_group(outer);
    REQUIRE(value_error_of([&] { get_backend(outer); }) == "Invalid process group specified");
  }
  auto ones = at::ones({1});
  all_reduce(ones, {.group = all});
  REQUIRE(ones.item<float>() == 3);
  REQUIRE(value_error_of([] { new_group({0, 0}); }) == "ranks list must not contain duplicate entries, got [0, 0]");
  REQUIRE(value_error_of([] { new_group({0, 7}); }) == "Rank 7 is out of range. Valid ranks are 0 to 2 (world_size=3)");
  REQUIRE(value_error_of([] {
            new_group({0, 1, 2, 3});
          }) == "the new group's world size should be less or equal to the world size set by init_process_group");
}

TEST(ProcessGroup, NewGroupHoldsTheRanksNamed) { run_workers("subgroups", {.world_size = 3}).expect_success(); }

COHORT_WORKER(launched_by_elastic) {
  unsetenv("TORCHELASTIC_RUN_ID");
  REQUIRE(!is_torchelastic_launched());
  setenv("TORCHELASTIC_RUN_ID", "job", 1);
  REQUIRE(is_torchelastic_launched());
}

TEST(ProcessGroup, KnowsWhetherALauncherStartedIt) {
  run_workers("launched_by_elastic", {.world_size = 1}).expect_success();
}

COHORT_WORKER(broken_pipe) {
  init_process_group("gloo");
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  REQUIRE(write(ends[1], "x", 1) == -1);  // an error, not a signal
  close(ends[1]);
}

TEST(ProcessGroup, BrokenPipesAreErrors) { run_workers("broken_pipe", {.world_size = 1}).expect_success(); }

COHORT_WORKER(local_rank_missing) {
  unsetenv("LOCAL_RANK");
  REQUIRE(get_node_local_rank(7) == 7);
  try {
    get_node_local_rank();
  } catch (const c10::Error& error) {
    std::cout << error.what_without_backtrace() << "\n" << std::flush;
  }
}

TEST(ProcessGroup, NodeLocalRankFallsBackMessage) {
  const auto results = run_workers("local_rank_missing", {.world_size = 1});
  results.expect_success();
  EXPECT_EQ(results[0].output,
            "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to "
            "work, assuming you are not running in a multi-device context and want the code to run locally instead.\n");
}

COHORT_WORKER(threads_per_rank) {
  unsetenv("LOCAL_WORLD_SIZE");
  init_process_group("gloo");
  REQUIRE(at::get_num_threads() == base::default_threads_per_rank(2));
  barrier();
}

TEST(ProcessGroup, ThreadsDefaultToCoresPerRank) { run_workers("threads_per_rank").expect_success(); }

COHORT_WORKER(forgets_everything) {
  init_process_group("gloo");
  barrier();
  auto tensor = at::ones({1 << 20});
  if (get_rank() == 0) all_reduce(tensor, {.async_op = true});  // rank 1 never comes, nobody waits
}

TEST(ProcessGroup, ExitsWithUnwaitedOperationAndWithoutDestroy) {
  const auto results = run_workers("forgets_everything", {.loads_anew = true});
  results.expect_success();
}

COHORT_WORKER(throws_out_of_main) {
  init_process_group("gloo");
  barrier();  // or the first to end breaks the other's connecting
  void (*volatile fails)() = [] { throw std::runtime_error("first line\nsecond line"); };
  [&]() noexcept { fails(); }();
}

TEST(ProcessGroup, UncaughtErrorLinesCarryTheRankMessage) {
  const auto results = run_workers("throws_out_of_main");
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(results[rank].exit_code, -SIGABRT);
    const auto prefix = "[rank" + std::to_string(rank) + "]: ";
    EXPECT_THAT(results[rank].errors,
                HasSubstr(prefix + "std::runtime_error: first line\n" + prefix + "second line\n"));
  }
}

COHORT_WORKER(unknown_debug_level) { init_process_group("gloo"); }

TEST(ProcessGroup, UnknownDebugLevelEndsTheStartMessage) {
  const auto results = run_workers("unknown_debug_level", {.environment = {{"TORCH_DISTRIBUTED_DEBUG", "loud"}}});
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(results[rank].exit_code, 1);
    EXPECT_EQ(results[rank].errors, "The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL.\n");
  }
}

COHORT_WORKER(fails_to_start_uncaught) {
  []() noexcept { init_process_group("gloo"); }();
}

TEST(ProcessGroup, UncaughtErrorOfTheStartCarriesTheRankMessage) {
  const auto results = run_workers("fails_to_start_uncaught", {.environment = {{"WORLD_SIZE", "1"}}});
  EXPECT_EQ(results[1].exit_code, -SIGABRT);
  EXPECT_EQ(
      results[1].errors,
      "[rank1]: c10::ValueError: Error initializing torch.distributed using env:// rendezvous: rank must be from 0 "
      "to 0 (world_size=1), got 1\n");
}

}  // namespace
}  // namespace cohort
