#include "benchmarks/collectives/collective_table.h"

#include <gtest/gtest.h>

namespace cohort::bench {
namespace {

Row make_row(const std::string& case_name, const std::string& rival_name, double ours) {
  Row row;
  row.case_name = case_name;
  row.rival_name = rival_name;
  row.ours = ours;
  row.ours_spread = Spread{.min = ours, .p50 = ours, .p99 = 2 * ours, .mean = 1.5 * ours};
  row.unit = "us";
  return row;
}

Row with_figure(Row row, double rival, double ratio_of_means) {
  row.rival = rival;
  row.ratio = rival / *row.ours;
  row.bounds = Interval{*row.ratio - 0.5, *row.ratio + 0.5};
  row.ratio_of_means = ratio_of_means;
  row.num_pairs = 20;
  return row;
}

TEST(CollectivesTable, CallsBoundsOfFewPairsARange) {
  Row row = with_figure(make_row("all_reduce/float32/4KiB/ranks=2", "gloo", 50), 1000, 20);
  for (const auto& [num_pairs, text] : {std::pair{5, "20.0 19.5..20.5 "}, std::pair{6, "20.0 [19.5 20.5]"}}) {
    row.num_pairs = static_cast<size_t>(num_pairs);
    EXPECT_NE(collectives_table({row}).find(text), std::string::npos) << collectives_table({row});
  }
}

TEST(CollectivesTable, HasABlockPerOperationAndALinePerSize) {
  const std::string text = collectives_table({
      with_figure(make_row("all_reduce/float32/4B/ranks=2", "gloo", 0.25), 100, 390),
      make_row("all_reduce/float32/4B/ranks=2", "openmpi", 0.25),
      with_figure(make_row("all_reduce/float32/64KiB/ranks=2", "gloo", 50), 1000, 20),
      with_figure(make_row("all_reduce/float32/64KiB/ranks=2/memory=shm", "roof", 50), 45, 0.9),
      with_figure(make_row("all_reduce/float32/1MiB/ranks=2", "gloo", 100), 1000, 10),
      with_figure(make_row("all_reduce/float32/1MiB/ranks=2", "openmpi", 100), 150, 1.4),
      with_figure(make_row("all_reduce/float32/1MiB/ranks=2/memory=shm", "roof", 50), 45, 0.9),
      with_figure(make_row("barrier/ranks=2", "gloo", 10), 30, 0.5),
  });
  const std::string ours = "     size  ours p50      mean       p99   GB/s";
  EXPECT_EQ(text,
            "us per call; ratio = rival / ours, above 1: ours is faster; roof: its time / ours, 1 is the limit\n"
            "\nall_reduce, float32, 2 ranks\n" +
                ours +
                " |      gloo  ratio 95 % bounds   |   openmpi  ratio 95 % bounds  \n"
                "       4B      0.25      0.38      0.50  0.016 |       100    400 [400 400]     "
                "|         -      -              \n"
                "    64KiB      50.0      75.0       100   1.31 |      1000   20.0 [19.5 20.5]   "
                "|                               \n"
                "     1MiB       100       150       200   10.5 |      1000   10.0 [9.50 10.5]   "
                "|       150   1.50 [1.00 2.00]  \n"
                "\nall_reduce, float32, 2 ranks, tensors in shared memory\n" +
                ours +
                " |      roof  ratio 95 % bounds  \n"
                "    64KiB      50.0      75.0       100   1.31 |      45.0   0.90 [0.40 1.40]  \n"
                "     1MiB      50.0      75.0       100   21.0 |      45.0   0.90 [0.40 1.40]  \n"
                "\nbarrier, 2 ranks\n" +
                ours +
                " |      gloo  ratio 95 % bounds  \n"
                "               10.0      15.0      20.0      - |      30.0   3.00 [2.50 3.50]  \n"
                "\nRatios that depend on how calls are summed up:\n"
                "  barrier/ranks=2, gloo: 3.00 by medians, 0.50 by means\n\n");
}

TEST(CollectivesTable, OfNothingIsALine) {
  EXPECT_EQ(collectives_table({}),
            "us per call; ratio = rival / ours, above 1: ours is faster; roof: its time / ours, 1 is the limit\n\n");
}

}  // namespace
}  // namespace cohort::bench
