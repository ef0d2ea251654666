#include "cohort/extras/data/transforms/sample_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tests/data/error_text.h"

namespace cohort::data {
namespace {

using test::error_text;

// The first known answer of the authors' Random123 (kat_vectors, philox4x32 10): all zeros.
TEST(SampleRandom, IsPhilox) {
  SampleRandom random(0, 0, 0);
  EXPECT_EQ(random.bits(), 0xe169c58d'6627e8d5ULL);
  EXPECT_EQ(random.bits(), 0x9b00dbd8'bc57ac4cULL);
}

TEST(SampleRandom, FollowsFromSeedEpochAndIndexAlone) {
  std::set<uint64_t> firsts;
  for (const uint64_t seed : {0ULL, 1ULL, 1ULL << 40}) {
    for (const int64_t epoch : {0LL, 1LL, (1LL << 32) - 1}) {
      for (const int64_t index : {0LL, 1LL, 1LL << 40}) {
        SampleRandom random(seed, epoch, index);
        const uint64_t first = random.bits();
        EXPECT_EQ(SampleRandom(seed, epoch, index).bits(), first);
        EXPECT_NE(random.bits(), first);
        firsts.insert(first);
      }
    }
  }
  EXPECT_EQ(firsts.size(), 27u);
}

TEST(SampleRandom, IntegersAndOrdersAreFair) {
  SampleRandom random(3, 0, 0);
  std::vector<int> counts(6);
  std::vector<int> at_front(3);
  for (int i = 0; i < 60000; ++i) ++counts.at(random.integer(-2, 4) + 2);
  for (int i = 0; i < 30000; ++i) ++at_front.at(random.permutation(3)[0]);
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  for (const int count : at_front) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(random.integer(5, 6), 5);
}

TEST(SampleRandom, HasTheMomentsOfItsDistributions) {
  SampleRandom random(4, 0, 0);
  const auto moments = [](auto draw) {
    double sum = 0;
    double squares = 0;
    constexpr int kDraws = 40000;
    for (int i = 0; i < kDraws; ++i) {
      const double value = draw();
      sum += value;
      squares += value * value;
    }
    const double mean = sum / kDraws;
    return std::pair(mean, squares / kDraws - mean * mean);
  };
  const auto [uniform, uniform_variance] = moments([&] { return random.uniform(-1, 3); });
  EXPECT_NEAR(uniform, 1.0, 0.03);
  EXPECT_NEAR(uniform_variance, 16.0 / 12, 0.03);
  const auto [normal, normal_variance] = moments([&] { return random.normal(); });
  EXPECT_NEAR(normal, 0.0, 0.03);
  EXPECT_NEAR(normal_variance, 1.0, 0.04);
  for (const double alpha : {0.2, 1.0, 5.0}) {
    const auto [beta, beta_variance] = moments([&] { return random.beta(alpha); });
    EXPECT_NEAR(beta, 0.5, 0.02);
    EXPECT_NEAR(beta_variance, 1.0 / (4 * (2 * alpha + 1)), 0.01);
  }
  const auto [chance, chance_variance] = moments([&] { return random.chance(0.25) ? 1.0 : 0.0; });
  EXPECT_NEAR(chance, 0.25, 0.02);
  EXPECT_FALSE(random.chance(0));
  EXPECT_TRUE(random.chance(1));
}

TEST(SampleRandom, MistakesMessages) {
  EXPECT_EQ(error_text<c10::ValueError>([] { SampleRandom(0, -1, 0); }),
            "[cohort] SampleRandom needs an epoch in [0, 2^32), but got -1");
  EXPECT_EQ(error_text<c10::ValueError>([] { SampleRandom(0, 0, -2); }),
            "[cohort] SampleRandom needs an index that is not negative, but got -2");
  EXPECT_EQ(error_text<c10::ValueError>([] { SampleRandom(0, 0, 0).integer(3, 3); }),
            "[cohort] SampleRandom::integer needs low < high, but got 3 and 3");
}

}  // namespace
}  // namespace cohort::data
