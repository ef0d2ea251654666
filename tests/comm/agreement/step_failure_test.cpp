#include "cohort/comm/agreement/step_failure.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "cohort/comm/collectives/collectives.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::comm {
namespace {

using test::error_of;
using test::require_equal;
using test::run_rank_threads;

// The text, and whether it is the exception that was thrown.
std::string shared(const StepFailure& failure, const Group& group) {
  try {
    failure.share("paint: the step failed", RankExchange(group));
  } catch (const std::out_of_range& error) {
    return std::string("own: ") + error.what();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "(no error)";
}

void fail_on(const std::vector<int>& ranks, int rank, StepFailure& failure) {
  failure.attempt("", [] {});
  REQUIRE(!failure.is_there());
  for (const int failing : ranks) {
    if (failing == rank) failure.attempt("", [&] { throw std::out_of_range("rank " + std::to_string(rank) + "\xff"); });
  }
}

TEST(StepFailure, OfOneRankIsToldToAll) {
  for (const int num_ranks : {2, 4}) {
    run_rank_threads(num_ranks, [](int rank, const Group& group) {
      StepFailure none, one;
      fail_on({}, rank, none);
      require_equal(shared(none, group), "(no error)");
      fail_on({1}, rank, one);
      REQUIRE(one.is_there() == (rank == 1));
      require_equal(shared(one, group),
                    rank == 1 ? "own: rank 1\xff" : "[cohort] paint: the step failed\n  rank 1: rank 1\xff");
      at::Tensor sum = at::full({1}, rank + 1);
      all_reduce(sum, {.group = group});  // nobody waits for what is over
      REQUIRE(sum.item<int>() == (group->getSize() == 2 ? 3 : 10));
    });
  }
}

TEST(StepFailure, OfSeveralRanksIsToldToAll) {
  run_rank_threads(4, [](int rank, const Group& group) {
    StepFailure failure;
    fail_on({0, 3}, rank, failure);
    require_equal(shared(failure, group),
                  "[cohort] paint: the step failed\n  rank 0: rank 0\xff\n  rank 3: rank 3\xff");
  });
}

// What another rank has said counts for this one's work, and is that rank's to tell.
TEST(StepFailure, OfAnotherRank) {
  run_rank_threads(2, [](int rank, const Group& group) {
    StepFailure failure;
    if (rank == 0) failure.note_other();
    REQUIRE(failure.is_there() == (rank == 0));
    require_equal(shared(failure, group), "(no error)");
  });
}

TEST(StepFailure, SaysWhatRan) {
  StepFailure failure;
  failure.attempt("stage 2 ran", [] { TORCH_CHECK(false, "no such class"); });
  EXPECT_EQ(shared(failure, {}), "no such class (stage 2 ran)");
}

TEST(StepFailure, ALostRankAndLeavingAtOnceAreThrown) {
  StepFailure failure;
  EXPECT_THROW(failure.attempt("", [] { C10_THROW_ERROR(DistBackendError, "rank 1 is gone"); }), c10::DistBackendError);
  failure.leave_at_once();
  EXPECT_THROW(failure.attempt("", [] { throw std::out_of_range("no paint"); }), std::out_of_range);
  EXPECT_EQ(error_of([&] { failure.attempt("", [] { TORCH_CHECK(false, "no paint"); }); }), "no paint");
  EXPECT_FALSE(failure.is_there());
}

}  // namespace
}  // namespace cohort::comm
