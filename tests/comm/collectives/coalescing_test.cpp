// The collectives that collectives_test leaves out, merged calls, batches, and the shapes of their arguments.
#include "cohort/comm/collectives/coalescing.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/comm/group/subgroups.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_workers;

at::Tensor row(int64_t value, int64_t count = 3) { return at::full({count}, value, at::kLong); }

void require_same(const at::Tensor& actual, const at::Tensor& expected) {
  if (!at::equal(actual, expected)) throw std::runtime_error(c10::str("expected ", expected, ", got ", actual));
}

// The group's ranks are the default group's in reverse, so that the two kinds of rank arguments differ.
COHORT_WORKER(rooted_collectives) {
  init_process_group("gloo");
  const int size = get_world_size();
  const auto group = new_group({2, 1, 0}, {.sort_ranks = false});
  const int rank = get_rank(group);
  auto tensor = row(get_rank());
  broadcast(tensor, 2, {.group = group});
  require_same(tensor, row(2));
  tensor = row(get_rank());
  broadcast(tensor, group_rank(2), {.group = group});
  require_same(tensor, row(0));

  tensor = row(get_rank() + 1);
  reduce(tensor, group_rank(1), {.op = ReduceOp::PRODUCT, .group = group});
  if (rank == 1) require_same(tensor, row(6));

  TensorList outputs;
  for (int r = 0; rank == 0 && r < size; ++r) outputs.push_back(row(-1));
  gather(row(get_rank()), outputs, 2, {.group = group});
  for (int r = 0; rank == 0 && r < size; ++r) require_same(outputs[r], row(2 - r));

  TensorList inputs;
  for (int r = 0; rank == 0 && r < size; ++r) inputs.push_back(row(10 * r));
  tensor = row(-1);
  scatter(tensor, inputs, group_rank(0), {.group = group});
  require_same(tensor, row(10 * rank));
  require_same(row(get_global_rank(group, rank)), row(get_rank()));

  if (get_rank() == 0) send(row(7), 2, {.group = group});
  if (get_rank() == 2) REQUIRE(recv(tensor, std::nullopt, {.group = group}) == 0);
  if (get_rank() == 2) require_same(tensor, row(7));
  barrier();
}

TEST(Coalescing, RootsAreGlobalOrGroupRanks) { run_workers("rooted_collectives", {.world_size = 3}).expect_success(); }

COHORT_WORKER(all_to_alls) {
  init_process_group("gloo");
  const int rank = get_rank();
  const int size = get_world_size();
  TensorList outputs;
  TensorList inputs;
  // Rank r sends r + s + 1 elements to rank s.
  for (int r = 0; r < size; ++r) {
    inputs.push_back(row(10 * rank + r, rank + r + 1));
    outputs.push_back(row(-1, rank + r + 1));
  }
  all_to_all(outputs, inputs);
  for (int r = 0; r < size; ++r) require_same(outputs[r], row(10 * r + rank, rank + r + 1));

  auto output = at::empty({size, 2}, at::kLong);
  all_to_all_single(output, at::arange(size * 2).view({size, 2}) + 100 * rank);
  for (int r = 0; r < size; ++r) require_same(output[r], at::arange(2) + 2 * rank + 100 * r);

  std::vector<int64_t> splits;
  for (int r = 0; r < size; ++r) splits.push_back(rank + r + 1);
  auto uneven = at::full({at::cat(inputs).size(0)}, -1, at::kLong);
  all_to_all_single(uneven, at::cat(inputs), splits, splits, {.async_op = true})->wait();
  require_same(uneven, at::cat(outputs));

  const auto one = row(0, 4);
  REQUIRE_EQUAL(
      error_of([&] { all_to_all_single(one, one); }),
      "[cohort] all_to_all_single: the output tensor's dim 0 is 4, which does not divide equally among 3 ranks; give "
      "output_split_sizes");
  REQUIRE_EQUAL(error_of([&] {
                  all_to_all_single(one, one, {1, 3});
                }),
                "[cohort] all_to_all_single: output_split_sizes needs one number per rank, 3, got 2");
  REQUIRE_EQUAL(error_of([&] {
                  all_to_all_single(one, one, {1, 1, 1});
                }),
                "[cohort] all_to_all_single: output_split_sizes add up to 3, but the output tensor's dim 0 is 4");
  REQUIRE_EQUAL(error_of([&] {
                  all_to_all_single(one, one, {1, 1, 2}, {5, -1, 0});
                }),
                "[cohort] all_to_all_single: input_split_sizes must not be negative, got -1");
  REQUIRE_EQUAL(error_of([&] { all_to_all({one}, {one}); }), "[cohort] all_to_all needs one tensor per rank, 3, got 1");
}

TEST(Coalescing, AllToAllInListsAndParts) { run_workers("all_to_alls", {.world_size = 3}).expect_success(); }

COHORT_WORKER(merged) {
  init_process_group("gloo");
  const int size = get_world_size();
  auto a = row(get_rank());
  auto b = row(10, 5);
  CoalescingManager sums;
  REQUIRE(!all_reduce(a));
  REQUIRE(!all_reduce(b));
  require_same(a, row(get_rank()));  // not yet
  sums.finish();
  require_same(a, row(1));
  require_same(b, row(20, 5));

  auto whole = at::empty({3 * size}, at::kLong);
  auto other = at::empty({size}, at::kLong);
  CoalescingManager gathers({.async_ops = true});
  all_gather_single(whole, row(get_rank()));
  all_gather_single(other, row(5, 1));
  gathers.finish()->wait();
  require_same(whole, at::cat({row(0), row(1)}));
  require_same(other, row(5, 2));

  auto part = row(-1, 1);
  auto second = row(-1, 2);
  CoalescingManager scatters;
  reduce_scatter_single(part, row(2, 2));
  reduce_scatter_single(second, row(3, 4));
  scatters.finish();
  require_same(part, row(4, 1));
  require_same(second, row(6, 2));

  all_reduce_coalesced({a, b}, {.op = ReduceOp::MAX});
  require_same(b, row(20, 5));
  CoalescingManager empty;
  REQUIRE(!empty.finish());
}

TEST(Coalescing, RunsKeptCallsTogether) { run_workers("merged").expect_success(); }

COHORT_WORKER(merged_wrongly) {
  init_process_group("gloo");
  auto tensor = row(1, 2);
  const auto whole = at::empty({4}, at::kLong);
  {
    CoalescingManager kinds;
    all_reduce(tensor);
    all_gather_single(whole, tensor);
    REQUIRE_EQUAL(error_of([&] { kinds.finish(); }),
                  "Coalescing manager requires all collectives to be the same type, but got all_reduce and "
                  "all_gather_single");
    REQUIRE_EQUAL(error_of([&] { kinds.finish(); }), "[cohort] CoalescingManager::finish() was called twice");
  }
  {
    CoalescingManager operations;
    all_reduce(tensor);
    all_reduce(tensor, {.op = ReduceOp::MAX});
    REQUIRE_EQUAL(error_of([&] { operations.finish(); }),
                  "[cohort] Coalescing manager requires one ReduceOp for all collectives");
  }
  {
    CoalescingManager outer;
    REQUIRE_EQUAL(error_of([] { CoalescingManager inner; }),
                  "[cohort] a CoalescingManager is already at work on this group in this thread");
  }
  {
    CoalescingManager dropped;
    all_reduce(tensor);
  }
  barrier();
  destroy_process_group();
}

TEST(Coalescing, RefusesMixedCallsMessage) {
  const auto results = run_workers("merged_wrongly");
  results.expect_success();
  EXPECT_EQ(results[0].errors,
            "[cohort] warning: a CoalescingManager ended without finish(): 1 collective(s) did not run\n");
}

COHORT_WORKER(batches) {
  init_process_group("gloo");
  const int rank = get_rank();
  const int size = get_world_size();
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  auto first = row(-1);
  auto second = row(-1);
  // Receives first, and two of them from one rank: order within a pair counts, order of kinds does not.
  const auto works = batch_isend_irecv({P2POp::irecv(first, previous), P2POp::irecv(second, previous),
                                        P2POp::isend(row(rank), next), P2POp::isend(row(rank + 10), next)});
  for (const auto& work : works) work->wait();
  require_same(first, row(previous));
  require_same(second, row(previous + 10));
  const auto pair = new_group({0, 1});
  REQUIRE_EQUAL(error_of([] { batch_isend_irecv({}); }), "[cohort] Invalid ``p2p_op_list``: it is empty");
  if (rank < 2) {
    REQUIRE_EQUAL(error_of([&] {
                    batch_isend_irecv({P2POp::isend(first, 1 - rank), P2POp::irecv(first, 1 - rank, {.group = pair})});
                  }),
                  "All ops need to use the same group.");
  }
  REQUIRE_EQUAL(
      error_of([&] { isend(first, rank); }),
      "Invalid destination rank: destination rank should not be the same as the rank of the current process.");
  REQUIRE_EQUAL(error_of([&] { send(first, group_rank(9)); }),
                "Group rank 9 is out of range. Valid ranks are 0 to 2 (world_size=3)");
  barrier();  // Gloo cannot connect to a rank that has ended
  destroy_process_group();
}

TEST(Coalescing, BatchesOfSendsAndReceives) { run_workers("batches", {.world_size = 3}).expect_success(); }

COHORT_WORKER(factors) {
  init_process_group("gloo");
  auto tensor = at::full({2}, 10.0);
  all_reduce(tensor, {.op = premul_sum(get_rank() == 0 ? 0.5 : 2.0)});
  require_same(tensor, at::full({2}, 25.0));
  all_reduce(tensor, {.op = premul_sum(at::full({1}, 2.0))});
  require_same(tensor, at::full({2}, 100.0));
  REQUIRE_EQUAL(error_of([] { premul_sum(at::ones({2})); }),
                "[cohort] premul_sum needs a factor of one element, got 2");
}

TEST(Coalescing, FactorsBeforeTheSum) { run_workers("factors").expect_success(); }

COHORT_WORKER(wrong_lists) {
  init_process_group("gloo");
  const auto two = row(1, 2);
  REQUIRE_EQUAL(error_of([&] { gather(two, {two}, 0); }),
                get_rank() == 0 ? "[cohort] gather needs one tensor per rank, 2, got 1"
                                : "[cohort] gather: outputs must be empty on ranks other than the root");
  REQUIRE_EQUAL(error_of([&] { scatter(two, {two}, 0); }),
                get_rank() == 0 ? "[cohort] scatter needs one tensor per rank, 2, got 1"
                                : "[cohort] scatter: inputs must be empty on ranks other than the root");
  REQUIRE_EQUAL(error_of([&] {
                  all_gather({two, two.to(at::kFloat)}, two);
                }),
                "[cohort] all_gather needs tensors of one dtype, got Long and Float");
  REQUIRE_EQUAL(error_of([&] {
                  all_gather({two, at::Tensor()}, two);
                }),
                "[cohort] Invalid tensor for all_gather: number 2 of the list is undefined");
  REQUIRE_EQUAL(error_of([&] {
                  all_reduce_coalesced({two, at::Tensor()});
                }),
                "[cohort] Invalid tensor for all_reduce_coalesced: tensors[1] is undefined. A parameter that backward "
                "did not reach "
                "has no gradient.");
  REQUIRE_EQUAL(error_of([&] { monitored_barrier({.timeout = std::chrono::milliseconds(0)}); }),
                "[cohort] timeout must be positive, got 0 ms");
  barrier();  // the other may still be connecting
  destroy_process_group();
}

TEST(Coalescing, WrongListsMessage) { run_workers("wrong_lists").expect_success(); }

}  // namespace
}  // namespace cohort
