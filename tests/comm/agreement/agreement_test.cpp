// What all ranks are told where one of them means something else by a call, or cannot do its part of it.
#include "cohort/comm/agreement/agreement.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "cohort/comm/agreement/rank_error.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/group/subgroups.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::comm {
namespace {

using test::error_of;
using test::require_equal;
using test::run_rank_threads;

Claim claim_of(Facts facts) {
  return {.function = "paint", .outcome = "nothing was painted", .facts = std::move(facts)};
}

const std::string kDiffer = "[cohort] paint: nothing was painted, as the ranks differ: ";

std::string text_on(const Group& group, const Claim& claim) {
  return error_of([&] { agree(claim, {group}); });
}

std::exception_ptr failure_of(const std::function<void()>& step) {
  try {
    step();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

TEST(Agreement, EqualFactsOfAllRanks) {
  run_rank_threads(3, [](int, const Group& group) {
    agree(claim_of({{"the color", "red"}, {"the number of coats", "2"}}), {group, {}});
    agree(claim_of({}), {group, group}, group);
  });
}

TEST(Agreement, SaysWhoHasWhichValueMessage) {
  run_rank_threads(4, [](int rank, const Group& group) {
    const std::string color = rank % 2 == 1 ? "blue" : "red";
    require_equal(text_on(group, claim_of({{"the brush", "wide"}, {"the color", color}})),
                  kDiffer + "the color is red on ranks 0 and 2, but blue on ranks 1 and 3");
    const std::string each = std::string(1, static_cast<char>('a' + rank));
    auto claim = claim_of({{"the color", each}});
    claim.hint = "give all ranks the same paint";
    require_equal(text_on(group, claim), kDiffer +
                                             "the color is a on rank 0, but b on rank 1, but c on rank 2, but d on "
                                             "rank 3\n  hint: give all ranks the same paint");
  });
}

TEST(Agreement, ShowsFourValuesOfManyMessage) {
  run_rank_threads(8, [](int rank, const Group& group) {
    const std::string each = std::string(1, static_cast<char>('a' + rank));
    require_equal(text_on(group, claim_of({{"the color", each}})),
                  kDiffer +
                      "the color is a on rank 0, but b on rank 1, but c on rank 2, but d on rank 3, but other "
                      "values on ranks 4 to 7");
  });
}

TEST(Agreement, OfTwoDifferencesTheFirst) {
  run_rank_threads(3, [](int rank, const Group& group) {
    require_equal(
        text_on(group, claim_of({{"the color", rank == 2 ? "blue" : "red"}, {"the brush", rank == 1 ? "new" : "old"}})),
        kDiffer + "the color is red on ranks 0 and 1, but blue on rank 2");
  });
}

TEST(Agreement, AFactThatSomeDoNotHave) {
  run_rank_threads(3, [](int rank, const Group& group) {
    Facts facts{{"the color", "red"}};
    if (rank == 1) facts.push_back({"the brush", "wide"});
    require_equal(text_on(group, claim_of(facts)),
                  kDiffer + "the brush is nothing on ranks 0 and 2, but wide on rank 1");
    // Other names at one place.
    require_equal(text_on(group, claim_of({{rank == 2 ? "the wall" : "the door", "red"}})),
                  kDiffer + "the door is red on ranks 0 and 1, but nothing on rank 2");
  });
}

TEST(Agreement, OtherFunctionsMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Claim claim{.function = rank == 0 ? "paint" : "sand", .outcome = "nothing was done"};
    require_equal(text_on(group, claim), "[cohort] " + claim.function +
                                             ": nothing was done, as the ranks differ: the function is paint on rank "
                                             "0, but sand on rank 1");
  });
}

TEST(Agreement, ADifferenceIsAValueError) {
  run_rank_threads(2, [](int rank, const Group& group) {
    bool is_value_error = false;
    try {
      agree(claim_of({{"the color", std::to_string(rank)}}), {group});
    } catch (const c10::ValueError&) {
      is_value_error = true;
    }
    REQUIRE(is_value_error);
  });
}

// Facts of neighbors: only those that have one compare it.
TEST(Agreement, FactsThatSomeRanksShare) {
  run_rank_threads(4, [](int rank, const Group& group) {
    const auto text_with = [&](const std::string& of_last) {
      auto claim = claim_of({{"the color", "red"}});
      if (rank > 0) claim.shared_facts.push_back({"edge " + std::to_string(rank - 1), "long"});
      claim.shared_facts.push_back({"edge " + std::to_string(rank), rank == 3 ? of_last : "long"});
      if (rank == 2) claim.shared_facts.back().value = "short";
      if (rank == 3) claim.shared_facts.front().value = of_last;
      return text_on(group, claim);
    };
    require_equal(text_with("short"), "(no error)");
    require_equal(text_with("round"), kDiffer + "edge 2 is short on rank 2, but round on rank 3");
  });
}

TEST(Agreement, ARankThatCannotGoOnMessage) {
  run_rank_threads(3, [](int rank, const Group& group) {
    auto claim = claim_of({{"the color", "red"}});
    if (rank == 1) {
      claim.facts.clear();
      claim.failure = failure_of([] { TORCH_CHECK_VALUE(false, "[cohort] no paint\n  hint: buy some"); });
    }
    const std::string text = "[cohort] paint: nothing was painted\n  rank 1: no paint\n    hint: buy some";
    require_equal(text_on(group, claim), text);
    try {
      agree(claim, {group});
    } catch (const RankError& error) {
      REQUIRE((error.failures() == RankFailures{{1, "no paint\n  hint: buy some"}}));
    }
    claim.throws_own_failure = true;
    require_equal(text_on(group, claim), rank == 1 ? "[cohort] no paint\n  hint: buy some" : text);
  });
}

TEST(Agreement, SeveralThatCannotGoOnMessage) {
  run_rank_threads(4, [](int rank, const Group& group) {
    auto claim = claim_of({});
    if (rank > 1) claim.failure = failure_of([&] { throw std::runtime_error("reason " + std::to_string(rank)); });
    require_equal(text_on(group, claim), "[cohort] paint: nothing was painted\n  rank 2: reason 2\n  rank 3: reason 3");
  });
}

// What options say differs; that one rank refuses them is its consequence.
TEST(Agreement, ADifferenceBeforeAFailure) {
  run_rank_threads(3, [](int rank, const Group& group) {
    auto claim = claim_of({{"the color", rank == 2 ? "none" : "red"}, {"the coats", "2"}});
    if (rank == 2) {
      claim.facts.pop_back();
      claim.failure = failure_of([] { throw std::runtime_error("no color"); });
    }
    require_equal(text_on(group, claim), kDiffer + "the color is red on ranks 0 and 1, but none on rank 2");
  });
}

// The exception that it is, once.
TEST(Agreement, AllThatFailAlikeThrowTheirOwn) {
  run_rank_threads(3, [](int, const Group& group) {
    auto claim = claim_of({});
    claim.failure = failure_of([] { throw std::out_of_range("no such color"); });
    std::string text;
    try {
      agree(claim, {group});
    } catch (const std::out_of_range& error) {
      text = error.what();
    }
    REQUIRE_EQUAL(text, "no such color");
  });
}

// Texts need not be UTF-8, such as names of files, and some exceptions have none.
TEST(Agreement, TextsOfAnyBytes) {
  run_rank_threads(3, [](int rank, const Group& group) {
    auto claim = claim_of({});
    if (rank == 2) claim.failure = failure_of([] { throw std::runtime_error("no \"\xff\""); });
    if (rank == 1) claim.failure = failure_of([] { throw std::runtime_error(""); });
    if (rank == 0) claim.failure = failure_of([] { throw 7; });
    require_equal(text_on(group, claim),
                  "[cohort] paint: nothing was painted\n  rank 0: an exception of another kind than std::exception\n"
                  "  rank 1: an exception without a text\n  rank 2: no \"\xff\"");
    require_equal(text_on(group, claim_of({{"\xfe", rank == 0 ? "\xfd" : "?"}})),
                  kDiffer + "\xfe is \xfd on rank 0, but ? on ranks 1 and 2");
  });
}

TEST(Agreement, OneGroupTellsTheNext) {
  run_rank_threads(4, [](int rank, const Group& group) {
    const auto row = test::split_rank_threads(group, {{0, 1}, {2, 3}});
    const auto column = test::split_rank_threads(group, {{0, 2}, {1, 3}});
    auto claim = claim_of({});
    if (rank == 3) claim.failure = failure_of([] { throw std::runtime_error("no paint"); });
    // Without a job ranks have their group's numbers.
    require_equal(error_of([&] {
                    agree(claim, {row, {}, column});
                  }),
                  "[cohort] paint: nothing was painted\n  rank 1: no paint");
    claim = claim_of({{"the color", rank == 1 ? "blue" : "red"}});
    require_equal(error_of([&] {
                    agree(claim, {row, column});
                  }),
                  kDiffer + "the color is red on rank 0, but blue on rank 1");
  });
}

// Where the ranks differ in which group comes last, nobody goes there.
TEST(Agreement, TheLastGroupOnlyWithoutADifference) {
  run_rank_threads(3, [](int rank, const Group& group) {
    const auto again = test::split_rank_threads(group, {{}, {}, {}, {0, 1, 2}});
    const auto claim = claim_of({{"the last group", rank == 1 ? "none" : "all"}});
    require_equal(error_of([&] { agree(claim, {group}, rank == 1 ? Group() : again); }),
                  kDiffer + "the last group is all on ranks 0 and 2, but none on rank 1");
    auto other = claim_of({});
    if (rank == 2) other.failure = failure_of([] { throw std::runtime_error("no paint"); });
    require_equal(error_of([&] { agree(other, {}, again); }),
                  "[cohort] paint: nothing was painted\n  rank 2: no paint");
  });
}

TEST(Agreement, ARankThatExchangesSomethingElseMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    if (rank == 1) {
      ObjectList list(2);
      return all_gather_object(list, c10::IValue(7), {.group = group});
    }
    require_equal(text_on(group, claim_of({})),
                  "[cohort] paint: nothing was painted, as rank 1 exchanges something else here\n  hint: make the "
                  "same calls in the same order on all ranks");
  });
}

TEST(Agreement, ARankAloneThrowsItsOwn) {
  run_rank_threads(1, [](int, const Group& group) {
    auto claim = claim_of({{"the color", "red"}});
    agree(claim, {group, {}});
    claim.failure = failure_of([] { throw std::out_of_range("no such color"); });
    REQUIRE_EQUAL(error_of([&] {
                    try {
                      agree(claim, {group});
                    } catch (const std::out_of_range& error) {
                      TORCH_CHECK(false, error.what());
                    }
                  }),
                  "no such color");
  });
}

COHORT_WORKER(agrees_in_a_subgroup) {
  init_process_group(test::backend_of_tests().c_str());
  const auto group = new_group({2, 1});
  if (get_rank() > 0) {
    REQUIRE_EQUAL(text_on(group, claim_of({{"the color", get_rank() == 1 ? "red" : "blue"}})),
                  kDiffer + "the color is red on rank 1, but blue on rank 2");
    auto claim = claim_of({});
    if (get_rank() == 2) claim.failure = failure_of([] { throw std::runtime_error("no paint"); });
    REQUIRE_EQUAL(text_on(group, claim), "[cohort] paint: nothing was painted\n  rank 2: no paint");
  }
  barrier();  // rank 0 hosts the store
  destroy_process_group();
}

TEST(Agreement, RanksHaveTheirNumbersInTheJob) {
  test::run_workers("agrees_in_a_subgroup", {.world_size = 3}).expect_success();
}

}  // namespace
}  // namespace cohort::comm
