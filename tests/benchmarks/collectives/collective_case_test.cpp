#include "benchmarks/collectives/collective_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

namespace cohort::bench {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

TEST(ParseSize, ReadsNumbersWithUnits) {
  EXPECT_EQ(parse_size("4"), 4U);
  EXPECT_EQ(parse_size("4B"), 4U);
  EXPECT_EQ(parse_size("4KiB"), 4 * kKiB);
  EXPECT_EQ(parse_size("4K"), 4 * kKiB);
  EXPECT_EQ(parse_size("64MiB"), 64 * kMiB);
  EXPECT_EQ(parse_size("2GiB"), 2048 * kMiB);
}

TEST(ParseSize, RefusesEverythingElse) {
  for (const char* text :
       {"", "MiB", "0", "0KiB", "-4", "4 KiB", "4kib", "4TiB", "1.5MiB", "99999999999999999999", "9999999GiB"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
}

TEST(FormatSize, TakesTheLargestUnitWithoutAFraction) {
  EXPECT_EQ(format_size(4), "4B");
  EXPECT_EQ(format_size(1023), "1023B");
  EXPECT_EQ(format_size(1536), "1536B");
  EXPECT_EQ(format_size(64 * kKiB), "64KiB");
  EXPECT_EQ(format_size(256 * kMiB), "256MiB");
  EXPECT_EQ(format_size(3072 * kMiB), "3GiB");
}

TEST(CaseName, IsTheContracts) {
  const CollectiveCase what{.op = Op::kAllReduce, .num_bytes = 64 * kMiB, .num_ranks = 2};
  EXPECT_EQ(case_name(what), "all_reduce/float32/64MiB/ranks=2");
  const CollectiveCase shared{Op::kAllGather, DType::kBFloat16, 4096, 8, Memory::kShared};
  EXPECT_EQ(case_name(shared), "all_gather_single/bfloat16/4KiB/ranks=8/memory=shm");
  EXPECT_EQ(case_name({.op = Op::kBarrier, .num_ranks = 4}), "barrier/ranks=4");
}

TEST(ParseCase, ReversesCaseName) {
  for (const bool is_quick : {false, true}) {
    for (const auto& what : list_cases({}, is_quick)) EXPECT_EQ(parse_case(case_name(what)), what) << case_name(what);
  }
  const CollectiveCase shared{Op::kAllGather, DType::kBFloat16, 4096, 8, Memory::kShared};
  EXPECT_EQ(parse_case(case_name(shared)), shared);
}

TEST(ParseCase, RefusesOtherNames) {
  for (const char* name : {"", "all_reduce", "all_reduce/float32/64MiB", "all_reduce/float64/64MiB/ranks=2", "barrier",
                           "all_reduce/float32/64MB/ranks=2", "all_reduce/float32/4B/ranks=0", "nothing/ranks=2",
                           "all_reduce/float32/4B/ranks=17", "mlp-4x1024/ranks=2"}) {
    EXPECT_EQ(parse_case(name), std::nullopt) << name;
  }
}

TEST(PlanBuffers, GivesEachOperationItsTensors) {
  const auto plan = [](Op op) { return plan_buffers({.op = op, .num_bytes = 64 * kKiB, .num_ranks = 4}, 0); };
  for (const Op op : {Op::kAllReduce, Op::kBroadcast, Op::kReduce}) {
    EXPECT_EQ(plan(op).input_bytes, 64 * kKiB);
    EXPECT_EQ(plan(op).output_bytes, 0U) << name_of(op) << " works in place";
  }
  EXPECT_EQ(plan(Op::kAllGather).input_bytes, 16 * kKiB);
  EXPECT_EQ(plan(Op::kAllGather).output_bytes, 64 * kKiB);
  EXPECT_EQ(plan(Op::kReduceScatter).input_bytes, 64 * kKiB);
  EXPECT_EQ(plan(Op::kReduceScatter).output_bytes, 16 * kKiB);
  EXPECT_EQ(plan(Op::kAllToAll).output_bytes, 64 * kKiB);
}

TEST(PlanBuffers, KeepsSmallTensorsAndTakesTurnsWithLargeOnes) {
  const auto count = [](size_t num_bytes) { return plan_buffers({.num_bytes = num_bytes}, 128 * kMiB).num_buffers; };
  EXPECT_EQ(count(4), 1U);
  EXPECT_EQ(count(kMiB - 4), 1U);
  EXPECT_EQ(count(kMiB), 128U);
  EXPECT_EQ(count(48 * kMiB), 3U) << "rounded up";
  EXPECT_EQ(count(256 * kMiB), 1U) << "its end drives its beginning out of the cache";
  EXPECT_EQ(plan_buffers({.num_bytes = kMiB}, 0).num_buffers, 1U);
}

TEST(ListCases, CoversOperationsSizesAndRanks) {
  const auto cases = list_cases({}, false);
  const auto has = [&](const char* name) {
    return std::any_of(cases.begin(), cases.end(), [&](const auto& what) { return case_name(what) == name; });
  };
  for (const char* ranks : {"2", "4", "8"}) {
    EXPECT_TRUE(has((std::string("all_reduce/float32/4B/ranks=") + ranks).c_str()));
    EXPECT_TRUE(has((std::string("all_reduce/float32/256MiB/ranks=") + ranks).c_str()));
    EXPECT_TRUE(has((std::string("reduce_scatter_single/bfloat16/1MiB/ranks=") + ranks).c_str()));
    EXPECT_TRUE(has((std::string("barrier/ranks=") + ranks).c_str()));
  }
  EXPECT_TRUE(has("all_gather_single/float32/32B/ranks=8")) << "an element for each rank";
  EXPECT_TRUE(has("send_recv/float32/4B/ranks=2"));
  EXPECT_FALSE(has("send_recv/float32/4B/ranks=4"));
  EXPECT_FALSE(has("broadcast/bfloat16/1MiB/ranks=2")) << "moves bytes, whatever they mean";
}

TEST(ListCases, FollowsTheFilter) {
  const auto filter = parse_filter({"broadcast", "barrier"}, {"1MiB", "6B"}, {"bfloat16", "float32"}, {"3"});
  std::vector<std::string> names;
  for (const auto& what : list_cases(filter, true)) names.push_back(case_name(what));
  EXPECT_EQ(names, (std::vector<std::string>{"broadcast/bfloat16/6B/ranks=3", "broadcast/bfloat16/1MiB/ranks=3",
                                             "broadcast/float32/8B/ranks=3", "broadcast/float32/1MiB/ranks=3",
                                             "barrier/ranks=3"}));
}

TEST(ParseFilter, NamesWhatIsMeantMessage) {
  const auto message = [](const std::vector<std::string>& ops, const std::vector<std::string>& ranks) -> std::string {
    try {
      parse_filter(ops, {}, {}, ranks);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(
      message({"all_reduced"}, {}),
      "\"all_reduced\" is not a valid operation (did you mean \"all_reduce\"?); known: all_reduce, broadcast, reduce, "
      "all_gather_single, reduce_scatter_single, all_to_all_single, send_recv, barrier");
  EXPECT_EQ(message({}, {"1"}), "\"1\" is not a valid number of ranks; known: 2 to 16");
}

}  // namespace
}  // namespace cohort::bench
