// Tensors of one call that lie over each other: the same result as with tensors of their own, or a named error; both backends.
#include "cohort/comm/tensors/overlap.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/comm/collectives/coalescing.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/comm/shm/make_shm_backend.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using comm::overlap;
using comm::share_elements;
using test::error_of;
using test::worker_arguments;

TEST(Overlap, GoesByFirstAndLastByte) {
  const auto all = at::zeros({8});
  EXPECT_FALSE(overlap({all.narrow(0, 0, 4), all.narrow(0, 4, 4)}));
  EXPECT_TRUE(overlap({all.narrow(0, 0, 5), all.narrow(0, 4, 4)}));
  EXPECT_TRUE(overlap({all}, {all.narrow(0, 7, 1)}));
  EXPECT_FALSE(overlap({at::zeros({8})}, {all, all}));
  EXPECT_FALSE(overlap({all.narrow(0, 3, 0), all}));
  // An input within another input hides nothing.
  EXPECT_TRUE(overlap({all.narrow(0, 6, 1)}, {all, all.narrow(0, 0, 2)}));
}

TEST(Overlap, ElementsOfColumnsAreTheirOwn) {
  const auto matrix = at::zeros({4, 3});
  EXPECT_TRUE(overlap({matrix.select(1, 0), matrix.select(1, 1)}));
  EXPECT_FALSE(share_elements(matrix.select(1, 0), matrix.select(1, 1)));
  EXPECT_TRUE(share_elements(matrix.select(1, 0), matrix.select(0, 2)));
  EXPECT_FALSE(share_elements(matrix.select(1, 0), at::zeros({3})));
}

class OverlapOn : public testing::TestWithParam<const char*> {
 public:
  static void run(int world_size, const std::function<void(int, const Group&)>& fn) {
    test::RankThreadsOptions options;
    if (std::string(GetParam()) == "shm") options.make_backend = comm::make_shm_backend;
    test::run_rank_threads(world_size, fn, options);
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, OverlapOn, testing::Values("shm", "gloo"),
                         [](const auto& info) { return std::string(info.param); });

at::Tensor numbers_of(int rank, int64_t count) {
  return at::arange(count, at::kFloat) + 10.0F * static_cast<float>(rank);
}

TEST_P(OverlapOn, AllReduceCoalescedCountsEachEntryOnce) {
  run(3, [](int rank, const Group& group) {
    for (const auto& op : {ReduceOp(ReduceOp::SUM), ReduceOp(ReduceOp::AVG), premul_sum(2.0)}) {
      auto all = numbers_of(rank, 6);
      const auto expected = all.clone();
      all_reduce(expected, {.op = op, .group = group});
      // Twice the same tensor, one that overlaps it, and a column.
      const TensorList tensors{all.narrow(0, 0, 4), all.narrow(0, 0, 4), all.narrow(0, 2, 3), all.narrow(0, 5, 1)};
      all_reduce_coalesced(tensors, {.op = op, .group = group});
      REQUIRE(at::equal(all, expected));
    }
  });
}

TEST_P(OverlapOn, InputsCountAsTheyWere) {
  run(3, [](int rank, const Group& group) {
    // all_gather whose input is another rank's place in the output.
    auto row = numbers_of(rank, 6);
    const auto mine = row.narrow(0, 2, 2).clone();
    TensorList parts{at::empty({2}), at::empty({2}), at::empty({2})};
    all_gather(parts, mine, {.group = group});
    all_gather_single(row, row.narrow(0, 2, 2), {.group = group});
    REQUIRE(at::equal(row, at::cat(parts)));
    // reduce_scatter into the list's own memory, at a place that is not this rank's.
    auto list_memory = numbers_of(rank, 6);
    const auto expected = list_memory.clone();
    all_reduce(expected, {.group = group});
    auto output = list_memory.narrow(0, 1, 2);
    reduce_scatter(output, {list_memory.narrow(0, 0, 2), list_memory.narrow(0, 2, 2), list_memory.narrow(0, 4, 2)},
                   {.group = group});
    REQUIRE(at::equal(output, expected.narrow(0, 2 * rank, 2)));
    auto whole = numbers_of(rank, 6);
    auto part = whole.narrow(0, 3, 2);
    reduce_scatter_single(part, whole, {.group = group});
    REQUIRE(at::equal(part, expected.narrow(0, 2 * rank, 2)));
    // all_to_all_single in place.
    auto exchanged = numbers_of(rank, 6);
    auto apart = at::empty({6});
    all_to_all_single(apart, exchanged.clone(), {}, {}, {.group = group});
    all_to_all_single(exchanged, exchanged, {}, {}, {.group = group});
    REQUIRE(at::equal(exchanged, apart));
  });
}

TEST_P(OverlapOn, OfOutputsTheLastWins) {
  run(2, [](int rank, const Group& group) {
    auto row = at::zeros({3});
    all_gather({row.narrow(0, 0, 2), row.narrow(0, 1, 2)}, numbers_of(rank, 2), {.group = group});
    REQUIRE(at::equal(row, at::tensor({0.0F, 10.0F, 11.0F})));
    const auto same = at::zeros({2});
    all_to_all({same, same}, {numbers_of(rank, 2), numbers_of(rank, 2) + 1}, {.group = group});
    REQUIRE(at::equal(same, numbers_of(1, 2) + static_cast<float>(rank)));
  });
}

TEST_P(OverlapOn, InPlaceGathersWork) {
  run(2, [](int rank, const Group& group) {
    auto row = numbers_of(rank, 4);
    all_gather_single(row, row.narrow(0, 2 * rank, 2), {.group = group});
    REQUIRE(at::equal(row, at::tensor({0.0F, 1.0F, 12.0F, 13.0F})));
    auto list = numbers_of(rank, 4);
    all_gather({list.narrow(0, 0, 2), list.narrow(0, 2, 2)}, list.narrow(0, 2 * rank, 2), {.group = group});
    REQUIRE(at::equal(list, row));
  });
}

TEST_P(OverlapOn, RepeatedElementsAreNoOutputMessage) {
  run(2, [](int, const Group& group) {
    const auto expanded = at::zeros({1}).expand({4});
    const std::string why =
        " cannot write to a tensor whose elements share memory, got shape [4] with strides [0]; pass a clone() of it";
    REQUIRE_EQUAL(error_of([&] {
                    all_reduce_coalesced({expanded, at::zeros({4})}, {.group = group});
                  }),
                  "[cohort] all_reduce_coalesced" + why);
    REQUIRE_EQUAL(error_of([&] {
                    all_gather({at::zeros({4}), expanded}, at::zeros({4}), {.group = group});
                  }),
                  "[cohort] all_gather" + why);
    REQUIRE_EQUAL(error_of([&] { all_to_all_single(expanded, at::zeros({4}), {}, {}, {.group = group}); }),
                  "[cohort] all_to_all_single" + why);
    REQUIRE_EQUAL(error_of([&] { all_reduce(expanded, {.group = group}); }), "[cohort] all_reduce" + why);
  });
}

TEST_P(OverlapOn, ListsOfUnevenSizes) {
  run(3, [](int rank, const Group& group) {
    const std::vector<int64_t> sizes{3, 0, 4};
    for (const auto& op : {ReduceOp(ReduceOp::SUM), ReduceOp(ReduceOp::AVG), ReduceOp(ReduceOp::MAX)}) {
      TensorList inputs;
      for (const auto size : sizes) inputs.push_back(numbers_of(rank, size) + static_cast<float>(size));
      auto expected = inputs[static_cast<size_t>(rank)].clone();
      for (size_t part = 0; part < 3; ++part) {
        const auto sum = inputs[part].clone();
        all_reduce(sum, {.op = op, .group = group});
        if (part == static_cast<size_t>(rank)) expected = sum;
      }
      auto output = at::empty({sizes[static_cast<size_t>(rank)]});
      reduce_scatter(output, inputs, {.op = op, .group = group});
      REQUIRE(at::equal(output, expected));
    }
    TensorList outputs;
    for (const auto size : sizes) outputs.push_back(at::empty({size}));
    all_gather(outputs, numbers_of(rank, sizes[static_cast<size_t>(rank)]), {.group = group});
    for (int source = 0; source < 3; ++source) {
      REQUIRE(at::equal(outputs[static_cast<size_t>(source)], numbers_of(source, sizes[static_cast<size_t>(source)])));
    }
    REQUIRE_EQUAL(error_of([&] { all_gather(outputs, at::zeros({5}), {.group = group}); }),
                  "[cohort] all_gather needs a tensor of 5 elements at place " + std::to_string(rank) +
                      " of the list, this rank's, got " + std::to_string(sizes[static_cast<size_t>(rank)]));
  });
}

// Roots and peers are ranks of the job, so here ranks are processes.
COHORT_WORKER(overlap_with_roots_and_peers) {
  init_process_group({.backend = worker_arguments().at(0)});
  const int rank = get_rank();
  auto board = numbers_of(rank, 6);
  TensorList gathered;
  if (rank == 1) gathered = {board.narrow(0, 0, 2), board.narrow(0, 2, 2), board.narrow(0, 4, 2)};
  gather(board.narrow(0, 1, 2), gathered, 1);
  if (rank == 1) REQUIRE(at::equal(board, at::tensor({1.0F, 2.0F, 11.0F, 12.0F, 21.0F, 22.0F})));
  auto pile = numbers_of(rank, 6);
  TensorList scattered;
  if (rank == 2) scattered = {pile.narrow(0, 0, 2), pile.narrow(0, 2, 2), pile.narrow(0, 4, 2)};
  auto piece = pile.narrow(0, 1, 2);
  scatter(piece, scattered, 2);
  REQUIRE(at::equal(piece, at::tensor({20.0F, 21.0F}) + 2.0F * static_cast<float>(rank)));

  const int next = (rank + 1) % 3;
  const int previous = (rank + 2) % 3;
  const auto row = numbers_of(rank, 4);
  REQUIRE_EQUAL(
      error_of([&] {
        batch_isend_irecv({P2POp::isend(row.narrow(0, 0, 3), next), P2POp::irecv(row.narrow(0, 2, 2), previous)});
      }),
      "[cohort] batch_isend_irecv: operation 1 receives into memory that operation 0 sends from at the same time; give "
      "each a "
      "tensor of its own");
  REQUIRE_EQUAL(error_of([&] {
                  batch_isend_irecv({P2POp::irecv(row, next), P2POp::irecv(row, previous)});
                }),
                "[cohort] batch_isend_irecv: operation 0 receives into memory that operation 1 receives into at the "
                "same time; give "
                "each a tensor of its own");
  REQUIRE_EQUAL(
      error_of([&] { recv(at::zeros({1}).expand({4}), next); }),
      "[cohort] recv cannot write to a tensor whose elements share memory, got shape [4] with strides [0]; pass a "
      "clone() of it");
  // Columns of one matrix lie between each other, and are not the same.
  const auto matrix = numbers_of(rank, 6).view({3, 2});
  for (const auto& work :
       batch_isend_irecv({P2POp::isend(matrix.select(1, 0), next), P2POp::irecv(matrix.select(1, 1), previous)})) {
    work->wait();
  }
  REQUIRE(at::equal(matrix.select(1, 1), numbers_of(previous, 6).view({3, 2}).select(1, 0)));
  destroy_process_group();
}

TEST_P(OverlapOn, RootsAndPeersMessage) {
  test::run_workers("overlap_with_roots_and_peers", {.world_size = 3, .arguments = {GetParam()}}).expect_success();
}

}  // namespace
}  // namespace cohort
