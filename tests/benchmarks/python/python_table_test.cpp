#include "benchmarks/python/python_table.h"

#include <gtest/gtest.h>

namespace cohort::bench {
namespace {

using Times = std::map<std::string, std::vector<double>>;

const Times kTimes{{"fake", {10, 11, 10, 10, 9, 10, 10}},
                   {"cohort", {12, 13, 12, 12, 11, 12, 12}},
                   {"gloo", {20, 21, 20, 20, 19, 20, 20}}};

TEST(PythonRows, CompareStepsAndWhatIsAddedToTheFloor) {
  const auto rows = python_rows("ddp/linear", kTimes, "");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].case_name, "ddp/linear/ranks=2");
  EXPECT_EQ(rows[0].rival_name, "fake");
  EXPECT_EQ(rows[0].unit, "ms");
  EXPECT_EQ(rows[0].ours, 12);
  EXPECT_EQ(rows[0].rival, 10);
  EXPECT_DOUBLE_EQ(*rows[0].ratio, 10.0 / 12);
  EXPECT_EQ(rows[0].num_pairs, 7u);
  EXPECT_EQ(rows[1].case_name, "ddp/linear/ranks=2");
  EXPECT_EQ(rows[1].rival_name, "gloo");
  EXPECT_DOUBLE_EQ(*rows[1].ratio, 20.0 / 12);
  EXPECT_EQ(rows[2].case_name, "ddp/linear/ranks=2/added");
  EXPECT_EQ(rows[2].rival_name, "gloo");
  EXPECT_EQ(rows[2].ours, 2);
  EXPECT_EQ(rows[2].rival, 10);
  EXPECT_DOUBLE_EQ(*rows[2].ratio, 5);
  EXPECT_EQ(rows[2].note, "");
}

TEST(PythonRows, SayTheMostWhereNoiseHidesWhatOursAdds) {
  auto times = kTimes;
  times["cohort"] = {11, 10, 10, 11, 8, 10, 9};
  const auto rows = python_rows("tp", times, "");
  EXPECT_FALSE(rows[2].ratio);
  EXPECT_EQ(rows[2].note, "noise hides what cohort adds: at most 1.000 ms, 0.10 of what gloo adds at least");
  times["gloo"] = times["cohort"];
  EXPECT_EQ(python_rows("tp", times, "")[2].note, "noise hides what gloo adds");
}

TEST(PythonRows, HaveNoFigureOfOursWhereItIsMissing) {
  const auto rows = python_rows("tp", {{"fake", {10}}, {"gloo", {21}}}, "not built");
  for (const auto& row : rows) {
    EXPECT_FALSE(row.ours);
    EXPECT_FALSE(row.ratio);
    EXPECT_EQ(row.note, "not built");
  }
  EXPECT_EQ(rows[0].rival, 10);
  EXPECT_EQ(rows[1].rival, 21);
  EXPECT_EQ(rows[2].rival, 11);
  for (const auto& row : python_rows("tp", {}, "no time left")) {
    EXPECT_FALSE(row.ours || row.rival);
    EXPECT_EQ(row.note, "no time left");
  }
}

TEST(PythonTable, HasALinePerCase) {
  auto rows = python_rows("ddp/linear", kTimes, "");
  for (auto& row : python_rows("tp", {{"fake", {10}}, {"gloo", {21}}}, "not built")) rows.push_back(row);
  EXPECT_EQ(
      python_table(rows),
      "milliseconds per step; added: above the floor, fake\n"
      "  case                                     fake     cohort       gloo  cohort / fake          cohort       "
      "gloo  cohort / gloo\n"
      "                                                                                               added      "
      "added  added               pairs\n"
      "  ddp/linear/ranks=2                     10.000     12.000     20.000  1.20 [1.18, 1.22]       2.000     "
      "10.000  0.20 [0.20, 0.20]       7\n"
      "  tp/ranks=2                             10.000          -     21.000  -                           -     "
      "11.000  -\n"
      "    not built\n");
}

}  // namespace
}  // namespace cohort::bench
