#include "cohort/comm/group/subgroups.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <chrono>
#include <filesystem>
#include <thread>

#include "cohort/base/file/atomic_file.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"
#include "tests/support/temporary_folder.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_workers;

int64_t sum_over(const Group& group, int64_t value) {
  auto tensor = at::full({1}, value, at::kLong);
  all_reduce(tensor, {.group = group});
  return tensor.item<int64_t>();
}

COHORT_WORKER(many_subgroups) {
  init_process_group("gloo");
  const int rank = get_rank();
  const auto [mine, all] = new_subgroups(2);
  REQUIRE(all.size() == 2);
  REQUIRE(all[rank / 2] == mine);
  REQUIRE(!is_member(all[1 - rank / 2]));
  REQUIRE(get_rank(mine) == rank % 2);
  REQUIRE(sum_over(mine, rank) == (rank < 2 ? 1 : 5));

  const auto [other, others] = new_subgroups_by_enumeration({{0, 3}, {1}}, {.group_desc = "ends"});
  REQUIRE(others.size() == 2);
  if (rank == 2) REQUIRE(!is_member(other));
  if (rank == 0 || rank == 3) REQUIRE(sum_over(other, rank) == 3);
  if (rank == 1) REQUIRE(sum_over(other, rank) == 1);

  const auto inner = new_subgroups(1, mine).first;
  REQUIRE(get_world_size(inner) == 1);
  barrier();
}

TEST(Subgroups, CutTheWorldIntoEqualParts) { run_workers("many_subgroups", {.world_size = 4}).expect_success(); }

COHORT_WORKER(subgroup_errors) {
  init_process_group("gloo");
  REQUIRE_EQUAL(error_of([] { new_subgroups(100); }), "The arg 'group_size' (100) must not exceed the world size (4)");
  REQUIRE_EQUAL(error_of([] { new_subgroups(3); }), "The world size (4) must be divisible by 'group_size=3'");
  REQUIRE_EQUAL(error_of([] { new_subgroups(0); }), "The arg 'group_size' (0) must be positive");
  REQUIRE_EQUAL(
      error_of([] { new_subgroups(); }),
      "Default group size only takes effect when CUDA is available. If your subgroup uses a backend that does "
      "not depend on CUDA, please pass in 'group_size' correctly.");
  REQUIRE_EQUAL(error_of([] { new_subgroups_by_enumeration({}); }),
                "The arg 'ranks_per_subgroup_list' cannot be empty");
  REQUIRE_EQUAL(error_of([] {
                  new_subgroups_by_enumeration({{0, 1}, {1, 2}});
                }),
                "Rank 1 has appeared in both subgroup [0, 1] and [1, 2]");
  REQUIRE_EQUAL(error_of([] { split_group({}, {}); }), "split_ranks cannot be None or empty");
  REQUIRE_EQUAL(error_of([] { split_group({}, {{}}); }), "the split group cannot be empty");
  REQUIRE_EQUAL(error_of([] { split_group({}, {{1, 1}}); }), "the split group cannot have duplicate ranks");
  REQUIRE_EQUAL(error_of([] {
                  split_group({}, {{0, 1}, {1}});
                }),
                "Group rank 1 has appeared in both [0, 1] and [1] of split_ranks");
  const auto on_cpu = new_group({}, {.backend = "cpu:gloo"});
  REQUIRE_EQUAL(
      error_of([&] { split_group(on_cpu, {{0}}, {.backend = "cuda:gloo"}); }),
      "Requested backend for device 'cuda' is not present in the parent process group (parent backends: cpu:gloo)");
  destroy_process_group(on_cpu);
  REQUIRE_EQUAL(error_of([] {
                  new_group({0, 1}, {.timeout = std::chrono::seconds(0)});
                }),
                "[cohort] timeout must be positive, got 0 ms");
  REQUIRE_EQUAL(
      error_of([] {
        new_group({0, 1}, {.backend = "cpu"});
      }),
      "[cohort] Unknown backend \"cpu\" (known: gloo, nccl, shm, cohort; others can be added by register_backend)");
  REQUIRE(get_pg_count() == 1);
  barrier();  // a group that connects needs all of its members
}

TEST(Subgroups, RefuseBadArgumentsMessage) { run_workers("subgroup_errors", {.world_size = 4}).expect_success(); }

COHORT_WORKER(split) {
  init_process_group("gloo");
  const int rank = get_rank();
  const auto outer = new_group({1, 2, 3});
  const auto part = is_member(outer) ? split_group(outer, {{0, 2}}) : Group();
  if (rank == 1 || rank == 3) {
    REQUIRE((get_process_group_ranks(part) == std::vector<int>{1, 3}));
    REQUIRE(get_rank(part) == rank / 2);
    REQUIRE(sum_over(part, rank) == 4);
  } else {
    REQUIRE(!part);
  }
  const auto halves = split_group({}, {{0, 1}, {3, 2}}, {.group_desc = "halves", .backend = "cpu:gloo"});
  REQUIRE(get_backend_config(halves) == "cpu:gloo");
  REQUIRE(get_rank(halves) == rank % 2);
  REQUIRE(sum_over(halves, rank) == (rank < 2 ? 1 : 5));
  barrier();
}

TEST(Subgroups, SplitFollowsRanksInTheParent) { run_workers("split", {.world_size = 4}).expect_success(); }

COHORT_WORKER(local_synchronization) {
  init_process_group("gloo");
  const int rank = get_rank();
  // Rank 2 makes no call at all, or a call that returns at once.
  if (rank == 1) REQUIRE(!is_member(new_group({0, 2}, {.use_local_synchronization = true})));
  if (rank != 1) {
    const auto first = new_group({2, 0}, {.use_local_synchronization = true, .sort_ranks = false});
    const auto second = new_group({2, 0}, {.use_local_synchronization = true, .sort_ranks = false});
    REQUIRE(first->getGroupName() != second->getGroupName());
    REQUIRE(get_rank(first) == (rank == 2 ? 0 : 1));
    REQUIRE(get_global_rank(first, 0) == 2 && get_group_rank(first, 0) == 1);
    auto tensor = at::full({1}, rank);
    broadcast(tensor, group_rank(0), {.group = first});
    REQUIRE(tensor.item<int64_t>() == 2);
    REQUIRE(sum_over(second, rank) == 2);
  }
  // Numbers of ordinary groups are not used up by the others.
  REQUIRE(new_group()->getGroupName() == "1");
  barrier();
}

TEST(Subgroups, LocalSynchronizationNeedsMembersOnly) {
  run_workers("local_synchronization", {.world_size = 3}).expect_success();
}

COHORT_WORKER(queries_and_registry) {
  init_process_group("gloo");
  REQUIRE(get_backend_config() == "cpu:gloo,cuda:gloo");
  REQUIRE(get_pg_count() == 1);
  const auto pair = new_group({}, {.backend = "cpu:gloo"});
  REQUIRE(get_pg_count() == 2);
  REQUIRE(get_backend(pair) == "cpu:gloo");
  REQUIRE(c10d::resolve_process_group("1") == pair);
  const auto before = get_sequence_number(pair);
  auto tensor = at::ones({1});
  all_reduce(tensor, {.group = pair});
  REQUIRE(get_sequence_number(pair) == before + 1);
  destroy_process_group(pair);
  REQUIRE(get_pg_count() == 1);
  destroy_process_group();
  init_process_group(
      {.backend = "cuda:gloo",
       .init_method = "file://" + test::worker_arguments()[0] + "?rank=" + getenv("RANK") + "&world_size=2"});
  REQUIRE_EQUAL(error_of([] { all_reduce(at::ones({1})); }),
                "[cohort] all_reduce got a tensor on cpu, but group \"default_pg\" has backend \"cuda:gloo\", which "
                "does not serve "
                "that device; move the tensor, or give a backend for both devices, such as \"cpu:gloo,cuda:nccl\", to "
                "init_process_group");
}

TEST(Subgroups, QueriesAndNamesInTheRegistry) {
  const test::TemporaryFolder folder;
  // The ranks of the second group do nothing together, so none of them may end while another is still connecting.
  run_workers("queries_and_registry",
              {.environment = {{"TORCH_DIST_INIT_BARRIER", "1"}}, .arguments = {folder.path() + "/store"}})
      .expect_success();
}

COHORT_WORKER(short_timeouts) {
  init_process_group("gloo");
  const auto pair = new_group({}, {.timeout = std::chrono::minutes(5), .group_desc = "pair"});
  REQUIRE_EQUAL(error_of([&] { set_pg_timeout(std::chrono::seconds(0), pair); }),
                "[cohort] timeout must be positive, got 0 ms");
  set_pg_timeout(std::chrono::milliseconds(700), pair);
  if (get_rank() == 1) return barrier(), void();
  auto tensor = at::ones({1});
  try {
    all_reduce(tensor, {.group = pair});
    throw std::runtime_error("rank 1 did not come, and nobody noticed");
  } catch (const c10::DistBackendError& error) {
    REQUIRE(std::string(error.what()).find("group's timeout of 700 ms") != std::string::npos);
  }
  barrier();
}

TEST(Subgroups, TimeOutsBelongToGroupsAndCanBeChanged) { run_workers("short_timeouts").expect_success(); }

// argument 0: a file that rank 2, which is no member, writes before it comes to new_group, late.
COHORT_WORKER(init_barrier) {
  init_process_group("gloo");
  const auto& path = test::worker_arguments().at(0);
  if (get_rank() == 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    REQUIRE(base::write_file_atomically(path, "").ok());
  }
  new_group({0, 1});
  REQUIRE(std::filesystem::exists(path));
  new_group({1, 2}, {.use_local_synchronization = true});
  barrier();
}

TEST(Subgroups, BarrierAfterInitWhenAskedFor) {
  const test::TemporaryFolder folder;
  run_workers("init_barrier", {.world_size = 3,
                               .environment = {{"TORCH_DIST_INIT_BARRIER", "1"}},
                               .arguments = {folder.path() + "/rank_2_comes"}})
      .expect_success();
}

}  // namespace
}  // namespace cohort
