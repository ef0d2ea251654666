#include "cohort/parallel/context/sequence_layout.h"

#include <gtest/gtest.h>

#include "cohort/comm/collectives/collectives.h"
#include "tests/parallel/tensor/numbers.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"

namespace cohort {
namespace {

using test::error_of;
using test::gradients_of;
using test::run_workers;

TEST(SequenceLayout, PairsHeadAndTail) {
  const auto order = [](int64_t length, int64_t num_ranks, parallel::SequenceLayout layout) {
    const auto positions = parallel::sequence_order(length, num_ranks, layout);
    return std::vector<int64_t>(positions.data_ptr<int64_t>(), positions.data_ptr<int64_t>() + length);
  };
  using Order = std::vector<int64_t>;
  EXPECT_EQ(order(8, 2, parallel::SequenceLayout::kHeadTail), (Order{0, 1, 6, 7, 2, 3, 4, 5}));
  EXPECT_EQ(order(8, 4, parallel::SequenceLayout::kHeadTail), (Order{0, 7, 1, 6, 2, 5, 3, 4}));
  EXPECT_EQ(order(6, 1, parallel::SequenceLayout::kHeadTail), (Order{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(order(6, 3, parallel::SequenceLayout::kContiguous), (Order{0, 1, 2, 3, 4, 5}));
}

COHORT_WORKER(sequence_shards) {
  init_process_group({.backend = test::backend_of_tests()});
  const int64_t n = get_world_size();
  for (const auto layout : {parallel::SequenceLayout::kContiguous, parallel::SequenceLayout::kHeadTail}) {
    const auto whole = at::arange(2 * 4 * n, at::kFloat).view({2, 4 * n}).requires_grad_();
    const auto part = parallel::shard_sequence(whole, -1, layout);
    const auto order = parallel::sequence_order(4 * n, n, layout);
    REQUIRE(at::equal(part, whole.index_select(1, order.narrow(0, 4 * get_rank(), 4))));
    const auto again = parallel::unshard_sequence(part, 1, layout);
    REQUIRE(at::equal(again, whole));
    const auto expected = at::zeros_like(whole).index_fill_(1, order.narrow(0, 4 * get_rank(), 4), 1);
    REQUIRE(at::equal(gradients_of(again, at::ones_like(whole), {whole})[0], expected));
  }
  destroy_process_group();
}

TEST(SequenceLayout, PartsMakeUpTheWhole) {
  for (const int n : {1, 2, 4}) run_workers("sequence_shards", {.world_size = n}).expect_success();
}

COHORT_WORKER(sequence_errors) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto x = at::ones({2, 6, 3});
  REQUIRE_EQUAL(
      error_of([&] { parallel::shard_sequence(x, 1, parallel::SequenceLayout::kHeadTail); }),
      "[cohort] context parallel: a sequence of 6 positions (dimension 1) cannot be divided evenly among 2 ranks: "
      "with load balancing each has a part from the head and one from the tail, so there are 2 * 2 = 4 parts, and "
      "6 mod 4 = 2\n  hint: pad it to 8 positions");
  REQUIRE_EQUAL(
      error_of([&] { parallel::shard_sequence(x, 2, parallel::SequenceLayout::kContiguous); }),
      "[cohort] context parallel: a sequence of 3 positions (dimension 2) cannot be divided evenly among 2 ranks: "
      "3 mod 2 = 1\n  hint: pad it to 4 positions");
  REQUIRE_EQUAL(
      error_of([&] { parallel::shard_sequence(at::ones({0}), 0, parallel::SequenceLayout::kContiguous); }),
      "[cohort] context parallel: a sequence of 0 positions (dimension 0) cannot be divided evenly among 2 ranks: "
      "0 mod 2 = 0\n  hint: pad it to 2 positions");
  REQUIRE_EQUAL(error_of([&] { parallel::unshard_sequence(x, 3, parallel::SequenceLayout::kContiguous); }),
                "Dimension out of range (expected to be in range of [-3, 2], but got 3)");
  barrier();  // no rank leaves while another one connects
  destroy_process_group();
}

TEST(SequenceLayout, SaysWhatDoesNotDivide) { run_workers("sequence_errors").expect_success(); }

}  // namespace
}  // namespace cohort
