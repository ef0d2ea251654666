// Tensors in memory that all ranks map. Ranks are processes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/comm/group/subgroups.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::run_workers;

constexpr int64_t kCount = (1 << 18) + 5;

at::Tensor shared(int64_t count, float value) {
  auto tensor = comm::shm_empty({count}, at::kFloat);
  tensor.fill_(value);
  return tensor;
}

COHORT_WORKER(shm_empty_in_all_operations) {
  init_process_group("shm");
  const int rank = get_rank();
  const int size = get_world_size();
  const auto sum = static_cast<float>(size * (size + 1) / 2);
  const auto one = shared(kCount, static_cast<float>(rank + 1));
  REQUIRE(at::equal(comm::shm_empty({3, 4}, at::kLong), at::zeros({3, 4}, at::kLong)));
  all_reduce(one);
  REQUIRE(at::equal(one, at::full({kCount}, sum)));
  one.fill_(rank + 1);
  broadcast(one, 1);
  REQUIRE(at::equal(one, at::full({kCount}, 2.0)));
  one.fill_(rank + 1);
  reduce(one, 1);
  REQUIRE(rank != 1 || at::equal(one, at::full({kCount}, sum)));
  one.fill_(rank + 1);
  const auto all = shared(kCount * size, 0);
  all_gather_single(all, one);
  for (int r = 0; r < size; ++r) REQUIRE(at::equal(all.view({size, -1})[r], at::full({kCount}, r + 1.0)));
  const auto part = shared(kCount, 0);
  reduce_scatter_single(part, all);
  REQUIRE(at::equal(part, at::full({kCount}, static_cast<double>(size * (rank + 1)))));
  const auto exchanged = shared(kCount * size, 0);
  all_to_all_single(exchanged, all);
  REQUIRE(at::equal(exchanged.view({size, -1})[size - 1], at::full({kCount}, rank + 1.0)));
  // Some ranks' tensors are shared, others' not.
  auto mixed = rank == 0 ? one : at::empty({kCount});
  mixed.fill_(rank + 1);
  all_reduce(mixed);
  REQUIRE(at::equal(mixed, at::full({kCount}, sum)));
  const auto next = group_rank((rank + 1) % size);
  const auto sending = isend(one.fill_(rank), next);
  recv(part, group_rank((rank + size - 1) % size));
  sending->wait();
  REQUIRE(at::equal(part, at::full({kCount}, static_cast<double>((rank + size - 1) % size))));
  destroy_process_group();
}

TEST(ShmEmpty, ServesAllOperations) { run_workers("shm_empty_in_all_operations", {.world_size = 3}).expect_success(); }

COHORT_WORKER(shm_empty_is_counted) {
  init_process_group("shm");
  REQUIRE(comm::shm_memory_allocated() == 0);
  auto tensor = comm::shm_empty({1 << 20}, at::kByte);
  const auto held = comm::shm_memory_allocated();
  REQUIRE(held >= (1 << 20) && held <= (1 << 20) + 4096);
  auto view = tensor.slice(0, 5);
  tensor.reset();
  REQUIRE(comm::shm_memory_allocated() == held);
  // It outlives its group.
  destroy_process_group();
  view.fill_(3);
  REQUIRE(view[7].item<int>() == 3);
  view.reset();
  REQUIRE(comm::shm_memory_allocated() == 0);
}

TEST(ShmEmpty, MemoryIsCountedAndFreed) { run_workers("shm_empty_is_counted").expect_success(); }

COHORT_WORKER(shm_empty_on_gloo) {
  init_process_group("gloo");
  try {
    comm::shm_empty({3});
    REQUIRE(false);
  } catch (const c10::ValueError& error) {
    REQUIRE(
        std::string(error.what_without_backtrace()) ==
        "[cohort] shm_empty needs a group of backend \"shm\", but group \"default_pg\" has \"gloo\"; name \"shm\" in "
        "init_process_group or new_group, or use at::empty");
  }
  const auto pair = new_group({}, {.backend = "shm"});
  REQUIRE(comm::shm_empty({3}, at::kFloat, pair).numel() == 3);
  destroy_process_group();
}

TEST(ShmEmpty, NeedsTheBackendMessage) { run_workers("shm_empty_on_gloo").expect_success(); }

}  // namespace
}  // namespace cohort
