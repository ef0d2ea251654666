// The allocator behind LibTorch's tensors, and what operations make of it. Ranks are processes.
#include "cohort/comm/memory/shared_allocator.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "cohort/base/system/env.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/comm/process/spawn.h"
#include "tests/support/marks.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

PLACE_OF_FILE(own)

namespace cohort {
namespace {

using test::run_workers;

constexpr int64_t kLarge = 1 << 20;  // floats: 4 MiB
constexpr size_t kLargeBytes = kLarge * sizeof(float);

class OtherAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t num_bytes) override { return c10::GetDefaultCPUAllocator()->allocate(num_bytes); }
  void copy_data(void* to, const void* from, size_t num_bytes) const override {
    default_copy_data(to, from, num_bytes);
  }
};

COHORT_WORKER(allocator_of_another_library) {
  static OtherAllocator other;
  const bool is_first = test::worker_arguments().at(0) == "before";
  if (is_first) c10::SetCPUAllocator(&other, /*priority=*/200);
  for (int i = 0; i < 2; ++i) {
    test::print_error([] { comm::use_shared_allocator({.reserved_bytes = size_t{64} << 20}); });
  }
  REQUIRE(comm::has_shared_allocator() == !is_first);
  if (!is_first) c10::SetCPUAllocator(&other, /*priority=*/200);
  REQUIRE(!comm::has_shared_allocator());
}

TEST(SharedAllocator, OfAnotherLibraryMessage) {
  const auto output_of = [](const std::string& when) {
    const auto results = run_workers("allocator_of_another_library", {.world_size = 1, .arguments = {when}});
    results.expect_success();
    return results[0].output;
  };
  const std::string error =
      "[cohort] use_shared_allocator: another library has set LibTorch's allocator for CPU tensors, with a higher "
      "priority\n"
      "  hint: use only one of the two: each allocates all CPU tensors\n";
  EXPECT_EQ(output_of("before"), error + error);
  EXPECT_EQ(output_of("since"), "(no error)\n(no error)\n");
}

COHORT_WORKER(allocator_of_one_process) {
  REQUIRE(!comm::has_shared_allocator());
  REQUIRE(comm::shared_allocator_stats().reserved_bytes == 0);
  REQUIRE_EQUAL(
      test::error_of([] { comm::use_shared_allocator({.reserved_bytes = 0}); }),
      "[cohort] use_shared_allocator: reserved_bytes is at least 1, but got 0\n  hint: leave it out for the size "
      "of the host's memory");
  auto before = at::full({kLarge}, 1.0f);
  comm::use_shared_allocator({.reserved_bytes = size_t{256} << 20});
  comm::use_shared_allocator();
  REQUIRE(comm::has_shared_allocator());
  REQUIRE(comm::shared_allocator_stats().reserved_bytes == size_t{256} << 20);
  auto small = at::full({16 * 1024 - 1}, 2.0f);  // a number less than 64 KiB
  REQUIRE(comm::shared_allocator_stats().used_bytes == 0);
  auto large = at::full({kLarge}, 3.0f);
  REQUIRE(comm::shared_allocator_stats().used_bytes == kLargeBytes);
  large.reset();
  REQUIRE(comm::shared_allocator_stats().cached_bytes == kLargeBytes);
  large = at::full({kLarge}, 4.0f);
  REQUIRE(comm::shared_allocator_stats().num_recycled == 1);
  // Resized, cloned, appended to; what does not fit comes from malloc.
  large.resize_({2 * kLarge}).fill_(5);
  const auto huge = at::full({int64_t{80} << 20}, 1.0f);
  REQUIRE(comm::shared_allocator_stats().num_refused >= 1);
  REQUIRE(at::equal(at::cat({large, before}).slice(0, 0, 2 * kLarge), at::full({2 * kLarge}, 5.0f)));
  REQUIRE(large.clone().sum().item<double>() == 10.0 * kLarge && huge.numel() == int64_t{80} << 20);
  before.reset();
  small.reset();
  const auto raw = c10::GetCPUAllocator()->raw_allocate(kLargeBytes);
  c10::GetCPUAllocator()->raw_deallocate(raw);
  c10::GetCPUAllocator()->raw_deallocate(c10::GetCPUAllocator()->raw_allocate(100));
  REQUIRE(at::empty({0}).numel() == 0);
  large.reset();
  comm::empty_shared_allocator_cache();
  REQUIRE(comm::shared_allocator_stats().cached_bytes == 0);
  REQUIRE(comm::shared_allocator_stats().used_bytes == 0);
}

TEST(SharedAllocator, ServesLargeTensorsOfOneProcess) {
  run_workers("allocator_of_one_process", {.world_size = 1}).expect_success();
}

COHORT_WORKER(allocator_in_all_operations) {
  init_process_group({.backend = "shm", .shared_allocator = true});
  const int rank = get_rank();
  const int size = get_world_size();
  const int sum_of_numbers = size * (size + 1) / 2;
  const auto sum = static_cast<float>(sum_of_numbers);
  const auto shift = at::empty({kLarge / 4 * (rank + 1)});  // other offsets on other ranks
  for (int turn = 0; turn < 3; ++turn) {
    const auto one = at::full({kLarge}, rank + 1.0f);
    all_reduce(one);
    REQUIRE(at::equal(one, at::full({kLarge}, sum)));
    one.fill_(rank + 1);
    broadcast(one, 1);
    REQUIRE(at::equal(one, at::full({kLarge}, 2.0f)));
    one.fill_(rank + 1);
    reduce(one, 1);
    REQUIRE(rank != 1 || at::equal(one, at::full({kLarge}, sum)));
    one.fill_(rank + 1);
    const auto all = at::empty({kLarge * size});
    all_gather_single(all, one);
    for (int r = 0; r < size; ++r) REQUIRE(at::equal(all.view({size, -1})[r], at::full({kLarge}, r + 1.0f)));
    std::vector<at::Tensor> apart;
    for (int r = 0; r < size; ++r) apart.push_back(at::empty({kLarge}));
    all_gather(apart, one);
    for (int r = 0; r < size; ++r) REQUIRE(at::equal(apart[r], at::full({kLarge}, r + 1.0f)));
    const auto part = at::empty({kLarge});
    reduce_scatter_single(part, all);
    REQUIRE(at::equal(part, at::full({kLarge}, size * (rank + 1.0f))));
    const auto exchanged = at::empty({kLarge * size});
    all_to_all_single(exchanged, all);
    REQUIRE(at::equal(exchanged.view({size, -1})[size - 1], at::full({kLarge}, rank + 1.0f)));
    all_reduce(at::full({kLarge}, rank + 1, at::kBFloat16));
  }
  // A part of another group, and tensors that some ranks have elsewhere.
  const auto pair = new_group({0, 1});
  const auto theirs = rank == 2 ? at::Tensor() : at::full({kLarge}, rank + 1.0f);
  if (rank != 2) all_reduce(theirs, {.group = pair});
  REQUIRE(rank == 2 || at::equal(theirs, at::full({kLarge}, 3.0f)));
  std::vector<float> ordinary(kLarge, static_cast<float>(rank + 1));
  const auto mixed =
      rank == 0 ? at::from_blob(ordinary.data(), {kLarge}) : at::full({kLarge}, static_cast<float>(rank + 1));
  all_reduce(mixed);
  REQUIRE(at::equal(mixed, at::full({kLarge}, sum)));
  const auto region = comm::shm_empty({kLarge}, at::kFloat);
  all_reduce(rank == 0 ? region.fill_(1) : at::full({kLarge}, rank + 1.0f));
  REQUIRE(rank != 0 || at::equal(region, at::full({kLarge}, sum)));
  destroy_process_group();
}

TEST(SharedAllocator, ServesAllOperations) {
  run_workers("allocator_in_all_operations", {.world_size = 3}).expect_success();
}

at::Tensor numbers_of(int rank, int turn, int64_t count) {
  return at::arange(count, at::kFloat) + static_cast<float>(1000 * rank + turn);
}

// Every rank sends to the next one: tensors of the allocator, slices, of shm_empty, and others.
COHORT_WORKER(allocator_in_messages) {
  init_process_group({.backend = "shm", .shared_allocator = true});
  const int rank = get_rank();
  const int size = get_world_size();
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  std::vector<float> ordinary(kLarge), received(kLarge);
  const auto region = comm::shm_empty({kLarge}, at::kFloat);
  auto gone = comm::shm_empty({kLarge}, at::kFloat);
  if (rank != 0) gone.reset();
  for (int turn = 0; turn < 8; ++turn) {
    const int64_t count = turn % 2 == 0 ? kLarge : 16 * 1024 + turn;
    const auto block = at::empty({kLarge + 100});
    auto in = block.narrow(0, turn * 3, count);
    if (turn == 3 || turn == 4) in = at::from_blob(ordinary.data(), {count});
    if (turn == 5) in = region.narrow(0, 17, count);
    if (turn == 6 && rank == 0) in = gone;
    if (turn == 7) in = at::empty({count, 2}).select(1, 0);
    in.copy_(numbers_of(rank, turn, count));
    auto out = at::full({count}, -1.0f);
    if (turn == 2 || turn == 4) out = at::from_blob(received.data(), {count});
    if (turn == 1 && rank == 1) out = region.narrow(0, 5, count);
    const auto works =
        batch_isend_irecv({P2POp::isend(in, next, {.tag = turn}), P2POp::irecv(out, previous, {.tag = turn})});
    for (const auto& work : works) REQUIRE(work->wait());
    REQUIRE(at::equal(out, numbers_of(previous, turn, count)));
    REQUIRE(at::equal(in, numbers_of(rank, turn, count)));
  }
  destroy_process_group();
}

TEST(SharedAllocator, ServesMessages) { run_workers("allocator_in_messages", {.world_size = 3}).expect_success(); }

// Only a rank that maps the others' tensors has their pages.
COHORT_WORKER(allocator_by_the_environment) {
  const int rank = std::stoi(*base::get_env("RANK"));
  const bool is_on = base::get_env("COHORT_TEST_ALLOCATOR") != "1" || rank == 0;
  base::set_env("COHORT_SHARED_ALLOCATOR", is_on ? "1" : "0");
  init_process_group("shm");
  REQUIRE(comm::has_shared_allocator() == is_on);
  const auto one = at::full({kLarge}, rank + 1.0f);
  all_reduce(one);
  REQUIRE(at::equal(one, at::full({kLarge}, 3.0f)));
  destroy_process_group();
}

TEST(SharedAllocator, IsAskedForByTheEnvironment) {
  run_workers("allocator_by_the_environment", {.world_size = 2}).expect_success();
}

TEST(SharedAllocator, OneRankWithoutItIsNoObstacle) {
  run_workers("allocator_by_the_environment", {.world_size = 2, .environment = {{"COHORT_TEST_ALLOCATOR", "1"}}})
      .expect_success();
}

COHORT_WORKER(allocator_of_spawned_ranks) {
  at::set_num_threads(1);
  const rlimit both{size_t{256} << 20, size_t{256} << 20};
  setrlimit(RLIMIT_FSIZE, &both);
  comm::use_shared_allocator({.reserved_bytes = size_t{256} << 20});  // and not more in the ranks
  const auto inherited = at::full({kLarge}, 7.0f);
  const auto file = std::filesystem::temp_directory_path() / ("allocator." + std::to_string(::getpid()));
  spawn(
      [&](int rank) {
        REQUIRE(!comm::has_shared_allocator());
        REQUIRE(at::equal(inherited, at::full({kLarge}, 7.0f)));
        init_process_group({.backend = "shm", .init_method = "file://" + file.string(), .world_size = 2, .rank = rank});
        REQUIRE(comm::has_shared_allocator());
        inherited.fill_(rank);
        const auto one = at::full({kLarge}, rank + 1.0f);
        all_reduce(one);
        REQUIRE(at::equal(one, at::full({kLarge}, 3.0f)));
        all_reduce(inherited);
        REQUIRE(at::equal(inherited, at::full({kLarge}, 1.0f)));
        destroy_process_group();
      },
      2);
  REQUIRE(at::equal(inherited, at::full({kLarge}, 7.0f)));
}

TEST(SharedAllocator, SpawnedRanksHaveOneEach) {
  run_workers("allocator_of_spawned_ranks", {.world_size = 1}).expect_success();
}

COHORT_WORKER(allocator_beyond_limits) {
  const rlimit both{size_t{1} << 20, size_t{1} << 20};
  setrlimit(RLIMIT_FSIZE, &both);
  init_process_group({.backend = "gloo", .shared_allocator = true});
}

TEST(SharedAllocator, LimitsMessage) {
  const auto ranks = run_workers("allocator_beyond_limits", {.world_size = 1});
  EXPECT_NE(ranks[0].errors.find("use_shared_allocator cannot reserve memory for tensors\n"), std::string::npos)
      << ranks[0].errors;
  EXPECT_NE(ranks[0].errors.find("; the size of this process's files is limited to 1.0 MiB (ulimit -f)\n"),
            std::string::npos);
}

// LibTorch's profiler hears of the blocks.
class Listener final : public c10::MemoryReportingInfoBase {
 public:
  bool memoryProfilingEnabled() const override { return true; }
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override { total_ += bytes; }
  int64_t total() const { return total_; }

 private:
  int64_t total_ = 0;
};

COHORT_WORKER(allocator_and_profiler) {
  comm::use_shared_allocator();
  const auto listener = std::make_shared<Listener>();
  c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, listener);
  auto one = at::empty({kLarge});
  REQUIRE(listener->total() == static_cast<int64_t>(kLargeBytes));
  one.reset();
  REQUIRE(listener->total() == 0);
  c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE);
}

TEST(SharedAllocator, TellsTheProfiler) { run_workers("allocator_and_profiler", {.world_size = 1}).expect_success(); }

}  // namespace
}  // namespace cohort
