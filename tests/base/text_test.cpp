#include "cohort/base/text/text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>

namespace cohort::base {
namespace {

using namespace std::chrono_literals;

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(split("", ','), std::vector<std::string>{""});
  EXPECT_EQ(join({"a", "b"}, " or "), "a or b");
  EXPECT_EQ(join({}, ","), "");
}

TEST(Text, TrimAndReplace) {
  EXPECT_EQ(trim(" \ta b\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_EQ(replace_all("a\nb\n", "\n", "\n  "), "a\n  b\n  ");
}

TEST(Text, ParseIntTakesWholeTextOnly) {
  EXPECT_EQ(parse_int("-12"), -12);
  EXPECT_EQ(parse_int("+3"), 3);
  EXPECT_EQ(parse_int("9223372036854775807"), 9223372036854775807LL);
  for (const char* bad : {"", "3x", " 3", "+-3", "0x10", "9223372036854775808", "1.0"}) {
    EXPECT_EQ(parse_int(bad), std::nullopt) << bad;
  }
}

TEST(Text, ParseDoubleAndBool) {
  EXPECT_EQ(parse_double("0.5"), 0.5);
  EXPECT_EQ(parse_double("nan"), std::nullopt);
  EXPECT_EQ(parse_double("1s"), std::nullopt);
  EXPECT_EQ(parse_bool("Yes"), true);
  EXPECT_EQ(parse_bool("0"), false);
  EXPECT_EQ(parse_bool("maybe"), std::nullopt);
}

TEST(Text, EditDistanceCountsSwapAsOne) {
  EXPECT_EQ(edit_distance("gloo", "gloo"), 0);
  EXPECT_EQ(edit_distance("golo", "gloo"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Text, DidYouMeanNamesOnlyNearWords) {
  const std::vector<std::string> backends = {"gloo", "nccl", "cohort"};
  EXPECT_EQ(did_you_mean("glo", backends), " (did you mean \"gloo\"?)");
  EXPECT_EQ(did_you_mean("cohrot", backends), " (did you mean \"cohort\"?)");
  EXPECT_EQ(did_you_mean("mpi", backends), "");
}

// Words that are far too long are not compared letter by letter, which would take minutes here.
TEST(Text, NothingIsNearAWordOfMillionsOfLetters) {
  const std::vector<std::string> candidates(1000, "nproc-per-node");
  const std::string word = std::string(20'000'000, 'n');  // NOLINT(bugprone-string-constructor)
  EXPECT_EQ(did_you_mean(word, candidates), "");
}

TEST(Text, FormatsBytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(25 << 20), "25.0 MiB");
  EXPECT_EQ(format_bytes((1ULL << 30) - 1), "1.0 GiB");
  EXPECT_EQ(format_bytes(~0ULL), "16.0 EiB");
}

TEST(Text, FormatsDurations) {
  EXPECT_EQ(format_duration(0s), "0 s");
  EXPECT_EQ(format_duration(12us), "12 us");
  EXPECT_EQ(format_duration(250ms), "250 ms");
  EXPECT_EQ(format_duration(999'900us), "1.0 s");
  EXPECT_EQ(format_duration(30s), "30.0 s");
  EXPECT_EQ(format_duration(312s), "5 min 12 s");
  EXPECT_EQ(format_duration(200min), "3 h 20 min");
  EXPECT_EQ(format_duration(-2s), "-2.0 s");
}

TEST(Text, NamesSignalsAndErrors) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(99), "signal 99");
  EXPECT_EQ(signal_number("TERM"), SIGTERM);
  EXPECT_EQ(signal_number("SIGTERM"), SIGTERM);
  EXPECT_EQ(signal_number("SIGNOTHING"), std::nullopt);
  EXPECT_EQ(errno_text(ENOENT), "No such file or directory (ENOENT)");
  EXPECT_EQ(errno_text(99999), "error 99999");
}

TEST(Text, ListsRanksInWords) {
  EXPECT_EQ(ranks_in_words({3}), "rank 3");
  EXPECT_EQ(ranks_in_words({1, 2}), "ranks 1 and 2");
  EXPECT_EQ(ranks_in_words({1, 2, 5}), "ranks 1, 2 and 5");
  EXPECT_EQ(ranks_in_words({1, 2, 3}), "ranks 1, 2 and 3");
  EXPECT_EQ(ranks_in_words({0, 1, 2, 3}), "ranks 0 to 3");
  EXPECT_EQ(ranks_in_words({0, 4, 5, 6, 7, 9, 10}), "ranks 0, 4 to 7, 9 and 10");
  EXPECT_EQ(ranks_in_words({0, 4, 5, 6, 7}), "ranks 0 and 4 to 7");
}

TEST(Text, FirstLineOfOneAndOfMany) {
  EXPECT_EQ(first_line("one\ntwo\n"), "one");
  EXPECT_EQ(first_line("one"), "one");
  EXPECT_EQ(first_line(""), "");
}

TEST(Text, FillsInValuesInOrder) {
  EXPECT_EQ(fmt::format("rank {} of {} on {}", 1, 2u, std::string("node")), "rank 1 of 2 on node");
  EXPECT_EQ(fmt::format("{}{}", "{}", 3), "{}3");
  EXPECT_EQ(fmt::format("nothing"), "nothing");
  EXPECT_EQ(fmt::format("one {}", 1, 2), "one 1");
  EXPECT_EQ(fmt::format("{}", 'x'), "x");
}

}  // namespace
}  // namespace cohort::base
