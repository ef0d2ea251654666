#include "benchmarks/support/turn_order.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "benchmarks/support/turns.h"
#include "cohort/base/file/file.h"
#include "tests/support/temporary_folder.h"

namespace cohort::bench {
namespace {

using Order = std::vector<size_t>;

// Of 200 draws of a fair coin, all are the same once in 10^59 runs of this test.
constexpr int kManyRounds = 400;

// (a, b): a goes before b.
std::set<std::pair<size_t, size_t>> pairs_in(const Order& order) {
  std::set<std::pair<size_t, size_t>> pairs;
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = i + 1; j < order.size(); ++j) pairs.emplace(order[i], order[j]);
  }
  return pairs;
}

TEST(TurnOrder, InEveryTwoRoundsEachSideGoesOnceBeforeAndOnceAfterEveryOther) {
  for (size_t num_sides = 1; num_sides <= 7; ++num_sides) {
    TurnOrder order(num_sides);
    for (int i = 0; i < 20; ++i) {
      auto pairs = pairs_in(order.next());
      const auto more = pairs_in(order.next());
      pairs.insert(more.begin(), more.end());
      EXPECT_EQ(pairs.size(), num_sides * (num_sides - 1)) << num_sides << " sides";
    }
  }
}

TEST(TurnOrder, IsDrawnAnew) {
  std::set<Order> seen;
  TurnOrder order(3);
  for (int round = 0; round < kManyRounds; ++round) seen.insert(order.next());
  EXPECT_EQ(seen.size(), 6U);
}

TEST(TurnOrder, DoesNotBeginWithTheSameSideInEveryCase) {
  std::set<Order> seen;
  for (int i = 0; i < kManyRounds; ++i) seen.insert(TurnOrder(2).next());
  EXPECT_EQ(seen.size(), 2U);
}

// Each side as often the first as the second of its round, whatever is measured.
void expect_fair(const std::string& turns) {
  for (size_t at = 0; at + 4 <= turns.size(); at += 4) {
    const std::string two_rounds = turns.substr(at, 4);
    EXPECT_TRUE(two_rounds == "abba" || two_rounds == "baab") << two_rounds << " in " << turns;
  }
}

TEST(MeasureInTurns, LetsEachSideGoFirstAndKeepsFiguresApart) {
  std::string turns;
  double a = 0;
  double b = 100;
  const auto figures = measure_in_turns({[&] { return turns += "a", ++a; }, [&] { return turns += "b", ++b; }}, 4);
  EXPECT_EQ(figures, (std::vector<std::vector<double>>{{1, 2, 3, 4}, {101, 102, 103, 104}}));
  EXPECT_EQ(turns.size(), 8U);
  expect_fair(turns);
}

// A rank that adds its letter to a file, and answers that it took a millisecond.
Team recording_team(const std::string& name, const test::TemporaryFolder& folder) {
  const std::string script = "exec < $2; while read verb rest; do [ $verb = quit ] && exit; printf " + name + " >> " +
                             folder.path() + "/turns; echo '= 1'; done";
  return Team({.name = name, .folder = folder.path(), .num_ranks = 1, .command = {"sh", "-c", script, "rank"}});
}

TEST(TakeTurns, LetsEachVariantGoFirst) {
  const test::TemporaryFolder folder;
  Team a = recording_team("a", folder);
  Team b = recording_team("b", folder);
  const auto later = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto times = take_turns({{"ours", &a, "ours"}, {"rival", &b, "rival"}},
                                {.num_warm = 0, .num_steps = 1, .num_rounds = 6, .deadline = later, .end = later});
  EXPECT_EQ(times.at("ours").size(), 6U);
  EXPECT_EQ(times.at("rival").size(), 6U);
  const std::string turns = base::read_file(folder / "turns").value();
  EXPECT_EQ(turns.size(), 12U);
  expect_fair(turns);
}

}  // namespace
}  // namespace cohort::bench
