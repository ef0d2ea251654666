#include "cohort/comm/agreement/rank_exchange.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::comm {
namespace {

using test::error_of;
using test::require_equal;
using test::run_rank_threads;

using Texts = std::vector<std::string>;

// Not UTF-8, and with a zero in it.
std::string text_of_rank(int rank) { return std::string("\xff\0", 2) + std::to_string(rank); }

std::string described(const StepResult& result) {
  return result ? "done " + *result : "failed " + result.error().describe();
}

TEST(RankExchange, AttemptsTakeExceptionsOfAllKinds) {
  EXPECT_EQ(described(attempt([] { return std::string("seven"); })), "done seven");
  EXPECT_EQ(described(attempt([]() -> std::string { throw std::runtime_error("broken"); })), "failed broken");
  EXPECT_EQ(described(attempt([]() -> std::string { TORCH_CHECK(false, "wrong"); })), "failed wrong");
  EXPECT_EQ(described(attempt([]() -> std::string { throw 7; })),
            "failed an exception of another kind than std::exception");
  EXPECT_EQ(described(attempt([]() -> std::string { throw std::runtime_error(""); })),
            "failed an exception without a text");
}

TEST(RankExchange, EverybodysByRank) {
  for (const int num_ranks : {1, 2, 3}) {
    run_rank_threads(num_ranks, [&](int rank, const Group& group) {
      const RankExchange ranks(group);
      REQUIRE(ranks.rank() == rank && ranks.size() == num_ranks && !ranks.is_alone());
      const auto own = rank == 1 ? StepResult(base::Error(text_of_rank(1)).with_hint("wait")) : text_of_rank(rank);
      const auto all = ranks.all(own);
      const auto numbers = ranks.all_numbers(std::vector<int64_t>(rank, -rank));
      const auto values = ranks.all_values(c10::IValue(rank * 0.5));
      REQUIRE(all.size() == static_cast<size_t>(num_ranks) && numbers.size() == all.size());
      for (int other = 0; other < num_ranks; ++other) {
        require_equal(described(all[other]),
                      other == 1 ? "failed " + text_of_rank(1) + "\n  hint: wait" : "done " + text_of_rank(other));
        REQUIRE(numbers[other] == std::vector<int64_t>(other, -other));
        REQUIRE(values[other].toDouble() == other * 0.5);
      }
      require_equal(described(ranks.from_first(text_of_rank(rank))), "done " + text_of_rank(0));
      require_equal(described(ranks.from_first(base::Error(text_of_rank(rank)))), "failed " + text_of_rank(0));
      const auto largest = ranks.largest({rank, -rank, (int64_t{1} << 60) + rank});
      REQUIRE((largest == std::vector<int64_t>{num_ranks - 1, 0, (int64_t{1} << 60) + num_ranks - 1}));
    });
  }
}

TEST(RankExchange, AProcessAloneTellsItself) {
  const RankExchange alone{Group()};
  EXPECT_TRUE(alone.is_alone() && alone.is_first() && alone.size() == 1);
  EXPECT_EQ(described(alone.all(text_of_rank(0)).at(0)), "done " + text_of_rank(0));
  EXPECT_EQ(described(alone.from_first(base::Error("broken"))), "failed broken");
  EXPECT_EQ(alone.largest({3, -4}), (std::vector<int64_t>{3, -4}));
  EXPECT_EQ(alone.all_numbers({}), std::vector<std::vector<int64_t>>{{}});
  EXPECT_EQ(alone.all_done("paint: nothing was painted", std::string("red")), Texts{"red"});
  EXPECT_EQ(error_of([&] { alone.all_done("paint: nothing was painted", base::Error("no paint\n  hint: buy some")); }),
            "[cohort] paint: nothing was painted\n  caused by: no paint\n  hint: buy some");
  EXPECT_EQ(alone.answer_of_first("paint", std::string("red"), [](const Texts& all) { return Texts{all.at(0) + "!"}; }),
            "red!");
  EXPECT_EQ(
      error_of([&] { alone.answer_of_first("paint", base::Error("no paint"), [](const Texts& all) { return all; }); }),
      "[cohort] paint\n  caused by: no paint");
}

TEST(RankExchange, AStepThatFailsIsThrownOnAll) {
  run_rank_threads(4, [](int rank, const Group& group) {
    const RankExchange ranks(group);
    const auto step = [&](int from) {
      return attempt([&] {
        TORCH_CHECK(rank < from, "[cohort] no paint on ", rank, "\n  hint: buy some");
        return text_of_rank(rank);
      });
    };
    REQUIRE((ranks.all_done("paint", step(4)) ==
             Texts{text_of_rank(0), text_of_rank(1), text_of_rank(2), text_of_rank(3)}));
    const std::string text =
        "[cohort] paint\n  rank 2: no paint on 2\n    hint: buy some\n  rank 3: no paint on 3\n    hint: buy some";
    require_equal(error_of([&] { ranks.all_done("paint", step(2)); }), text);
    const auto each = [](const Texts& all) { return all; };
    require_equal(error_of([&] { ranks.answer_of_first("paint", step(2), each); }), text);
    try {
      ranks.answer_of_first("paint", step(3), each);
      REQUIRE(false && "thrown");
    } catch (const RankError& error) {
      REQUIRE(error.failures().size() == 1);
      require_equal(error.failures().at(3), "no paint on 3\n  hint: buy some");
    }
  });
}

TEST(RankExchange, TheFirstRankAnswersEach) {
  run_rank_threads(3, [](int rank, const Group& group) {
    const RankExchange ranks(group);
    const auto answer = [&](const Texts& all) {
      REQUIRE(rank == 0);
      return Texts{all.at(2), all.at(0), all.at(1) + all.at(2)};
    };
    const Texts expected{text_of_rank(2), text_of_rank(0), text_of_rank(1) + text_of_rank(2)};
    require_equal(ranks.answer_of_first("paint", text_of_rank(rank), answer), expected.at(rank));
    const auto fails = [](const Texts&) -> Texts { throw std::runtime_error("no paint"); };
    require_equal(error_of([&] { ranks.answer_of_first("paint", text_of_rank(rank), fails); }),
                  "[cohort] paint\n  rank 0: no paint");
  });
}

}  // namespace
}  // namespace cohort::comm
