#include "cohort/shm/transfer/matching.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::shm {
namespace {

using ::testing::ElementsAre;

Message small_message(int32_t tag, uint64_t number) { return {{4, tag, DType::kInt8}, number, true}; }

TEST(Matching, TakesMessagesOfOneTagInTheOrderSent) {
  Matching matching(2);
  for (uint64_t number = 1; number <= 4; ++number) {
    EXPECT_EQ(matching.arrive(1, small_message(number % 2 ? 5 : 6, number)), nullptr);
  }
  Wish first{1, 6};
  Wish second{1, 6};
  Wish third{1, 5};
  EXPECT_EQ(matching.post(&first)->message.number, 2u);
  EXPECT_EQ(matching.post(&second)->message.number, 4u);
  EXPECT_EQ(matching.post(&third)->message.number, 1u);
  EXPECT_EQ(matching.oldest_in_offer(1), 3u);
  EXPECT_FALSE(matching.has_wishes());
}

TEST(Matching, ServesReceivesInTheOrderPosted) {
  Matching matching(3);
  Wish any{kAnySource, 5};
  Wish named{1, 5};
  EXPECT_FALSE(matching.post(&any));
  EXPECT_FALSE(matching.post(&named));
  EXPECT_TRUE(matching.wishes_from(2));
  EXPECT_EQ(matching.arrive(1, small_message(5, 1)), &any);
  EXPECT_FALSE(matching.wishes_from(2));
  EXPECT_TRUE(matching.wishes_from(1));
  EXPECT_EQ(matching.arrive(2, small_message(5, 1)), nullptr);
  EXPECT_EQ(matching.arrive(1, small_message(5, 2)), &named);
}

TEST(Matching, ReceivesWaitForTheirTag) {
  Matching matching(2);
  Wish first{1, 5};
  Wish second{1, 6};
  EXPECT_FALSE(matching.post(&first));
  EXPECT_FALSE(matching.post(&second));
  EXPECT_EQ(matching.arrive(1, small_message(7, 1)), nullptr);
  EXPECT_EQ(matching.arrive(1, small_message(6, 2)), &second);
  EXPECT_EQ(matching.arrive(1, small_message(5, 3)), &first);
}

TEST(Matching, TakesTurnsBetweenSources) {
  Matching matching(3);
  for (uint64_t number = 1; number <= 2; ++number) {
    for (const int source : {1, 2}) matching.arrive(source, small_message(5, number));
  }
  std::vector<int> sources;
  for (int i = 0; i < 4; ++i) {
    Wish wish{kAnySource, 5};
    sources.push_back(matching.post(&wish)->source);
  }
  EXPECT_THAT(sources, ElementsAre(1, 2, 1, 2));
}

TEST(Matching, ForgetsWithdrawnWishes) {
  Matching matching(2);
  Wish wish{1, 5};
  matching.post(&wish);
  matching.withdraw(&wish);
  EXPECT_FALSE(matching.has_wishes());
  EXPECT_EQ(matching.arrive(1, small_message(5, 1)), nullptr);
}

TEST(Matching, KnowsWhatWaitsAndWhere) {
  Matching matching(2);
  for (const int32_t tag : {9, 3, 9}) matching.arrive(1, small_message(tag, static_cast<uint64_t>(tag)));
  matching.arrive(1, {{1000, 4, DType::kInt8}, 10, false});
  EXPECT_THAT(matching.waiting_tags(1), ElementsAre(3, 4, 9));
  int num_rescued = 0;
  matching.empty_offers(1, [&](Message& message) {
    message.payload.resize(1);
    ++num_rescued;
  });
  EXPECT_EQ(num_rescued, 3);
  EXPECT_FALSE(matching.oldest_in_offer(1));
  Wish wish{1, 3};
  EXPECT_EQ(matching.post(&wish)->message.payload.size(), 1u);
}

}  // namespace
}  // namespace cohort::shm
