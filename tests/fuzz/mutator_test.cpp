#include "tests/fuzz/mutator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace cohort::fuzz {
namespace {

using testing::ElementsAre;

TEST(Mutator, TheSameNumbersMakeTheSameInput) {
  const Mutator mutator({"one", "two"}, {"token"}, 1000);
  for (uint64_t number = 0; number < 100; ++number) EXPECT_EQ(mutator.make(7, number), mutator.make(7, number));
  EXPECT_NE(mutator.make(7, 0), mutator.make(8, 0));
}

TEST(Mutator, InputsDifferAndStayBelowTheirLimit) {
  const Mutator mutator({std::string(50, 'a'), "12,34"}, {"token"}, 1000);
  std::set<std::string> inputs;
  size_t longest = 0;
  for (uint64_t number = 0; number < 2000; ++number) {
    const auto input = mutator.make(1, number);
    longest = std::max(longest, input.size());
    inputs.insert(input);
  }
  EXPECT_GT(inputs.size(), 1500u);
  EXPECT_EQ(longest, 1000u);
}

// Each is one kind of change that a parser may stumble over.
TEST(Mutator, MakesEveryKindOfChange) {
  const std::string seed = "name[12]";
  const Mutator mutator({seed, "other"}, {"token"}, 100'000);
  bool cut = false, flipped = false, token = false, spliced = false, repeated = false, number = false, size = false;
  for (uint64_t i = 0; i < 50'000; ++i) {
    const auto input = mutator.make(3, i);
    cut = cut || input == "name[";
    flipped = flipped || input == "nqme[12]" || input == "name[13]";
    token = token || input == "nametoken[12]";
    spliced = spliced || input == "nameother";
    repeated = repeated || input.find("[[[[[[[[[[[[[[[[[[[[") != std::string::npos;
    number = number || input == "name[9223372036854775807]";
    size = size || input == std::string("name\xff\xff\xff\xff", 8);
  }
  EXPECT_TRUE(cut && flipped && token && spliced && repeated && number && size)
      << cut << flipped << token << spliced << repeated << number << size;
}

TEST(Mutator, ReadsDictionaries) {
  EXPECT_THAT(parse_dictionary("# words\nname=\"a b\"\n\"\\x00\\xff\"\n\n\"\\\"\\\\\"\n"),
              ElementsAre("a b", std::string("\0\xff", 2), "\"\\"));
}

}  // namespace
}  // namespace cohort::fuzz
