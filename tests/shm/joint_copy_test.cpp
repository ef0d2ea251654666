#include "cohort/shm/transfer/joint_copy.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/shm/exchange_ranks.h"

namespace cohort::shm {
namespace {

constexpr size_t kBlock = JointCopy::kBlockBytes;
constexpr size_t kSeveral = JointCopy::kMostAtOnce + 2 * kBlock + 5;

// Both ends of a message, in memory of this process.
struct BothEnds {
  explicit BothEnds(size_t num_bytes = kSeveral, uint64_t number = 7)
      : sent(pattern(num_bytes, static_cast<uint32_t>(number))),
        received(num_bytes),
        sender(memory, JointCopy::End::kSender, number, way()),
        receiver(memory, JointCopy::End::kReceiver, number, way()) {}

  JointCopy::Way way() {
    return {reinterpret_cast<const std::byte*>(sent.data()), reinterpret_cast<std::byte*>(received.data()),
            sent.size()};
  }

  JointCopyMemory memory{};
  std::vector<uint8_t> sent;
  std::vector<uint8_t> received;
  JointCopy sender;
  JointCopy receiver;
};

TEST(JointCopy, NothingIsCopiedBeforeItBegins) {
  BothEnds message;
  EXPECT_EQ(message.sender.copy_some(), 0u);
  EXPECT_EQ(message.receiver.copy_some(), 0u);
  EXPECT_FALSE(message.receiver.take());
}

TEST(JointCopy, TheReceiverCopiesAllIfTheSenderHasNoTime) {
  BothEnds message;
  ASSERT_TRUE(message.receiver.begin());
  EXPECT_EQ(message.receiver.copy_some(), JointCopy::kMostAtOnce);
  EXPECT_FALSE(message.receiver.take());
  EXPECT_EQ(message.receiver.copy_some(), 2 * kBlock + 5);
  EXPECT_EQ(message.receiver.copy_some(), 0u);
  EXPECT_TRUE(message.receiver.take());
  EXPECT_EQ(message.received, message.sent);
}

TEST(JointCopy, BothCopyAndNothingIsTakenBeforeBothAreDone) {
  BothEnds message(20 * kBlock);
  ASSERT_TRUE(message.receiver.begin());
  size_t num_copied = 0;
  while (num_copied < message.sent.size()) {
    EXPECT_FALSE(message.receiver.take());
    num_copied += message.sender.copy_some();
    num_copied += message.receiver.copy_some();
    EXPECT_EQ(message.receiver.num_copied(), num_copied);
    EXPECT_LE(message.sender.num_copied(), num_copied);
  }
  EXPECT_TRUE(message.receiver.take());
  EXPECT_FALSE(message.receiver.take());
  EXPECT_EQ(message.received, message.sent);
}

TEST(JointCopy, OneThatReachesNothingLeavesAllToTheOther) {
  BothEnds message;
  JointCopy blind(message.memory, JointCopy::End::kReceiver, 7, {nullptr, message.way().to, kSeveral});
  ASSERT_TRUE(blind.begin());
  EXPECT_EQ(blind.copy_some(), 0u);
  while (message.sender.copy_some() > 0) EXPECT_EQ(message.received.back(), message.sent.back());
  EXPECT_TRUE(blind.take());
  EXPECT_EQ(message.received, message.sent);
}

TEST(JointCopy, WhatTheSenderHasGivenUpIsNeverTaken) {
  BothEnds message;
  ASSERT_TRUE(message.receiver.begin());
  while (message.receiver.copy_some() > 0) {
  }
  JointCopy::close(message.memory);
  EXPECT_FALSE(message.receiver.take());

  BothEnds offered;
  JointCopy::close(offered.memory);
  EXPECT_FALSE(offered.receiver.begin());

  BothEnds running;
  ASSERT_TRUE(running.receiver.begin());
  EXPECT_GT(running.receiver.copy_some(), 0u);
  JointCopy::close(running.memory);
  EXPECT_EQ(running.receiver.copy_some(), 0u);
}

TEST(JointCopy, AReceiverThatGivesUpLearnsWhetherTheSenderIsWithinABlock) {
  BothEnds message;
  ASSERT_TRUE(message.receiver.begin());
  EXPECT_GT(message.sender.copy_some(), 0u);
  // As if it were not done with the last one.
  message.memory.num_given.fetch_sub(1);
  EXPECT_TRUE(message.receiver.close());
  EXPECT_FALSE(message.receiver.close());
  EXPECT_EQ(message.sender.copy_some(), 0u);

  BothEnds idle;
  ASSERT_TRUE(idle.receiver.begin());
  EXPECT_GT(idle.sender.copy_some(), 0u);
  EXPECT_GT(idle.receiver.copy_some(), 0u);
  EXPECT_FALSE(idle.receiver.close());
}

// An end that was stopped for a while.
TEST(JointCopy, AnEndOfAnEarlierMessageCopiesNothingOfALaterOne) {
  BothEnds message;
  ASSERT_TRUE(message.receiver.begin());
  while (message.receiver.copy_some() > 0) {
  }
  ASSERT_TRUE(message.receiver.take());
  EXPECT_EQ(message.sender.copy_some(), 0u);
  JointCopy next(message.memory, JointCopy::End::kReceiver, 8, message.way());
  ASSERT_TRUE(next.begin());
  EXPECT_EQ(message.sender.copy_some(), 0u);
  EXPECT_GT(next.copy_some(), 0u);
  EXPECT_FALSE(message.receiver.take());
}

// The largest number that the word has room for, and the one after it.
TEST(JointCopy, NumbersMayStartAgain) {
  for (const uint64_t number : {uint64_t{65535}, uint64_t{65536}, uint64_t{1} << 40}) {
    BothEnds message(kSeveral, number);
    ASSERT_TRUE(message.receiver.begin());
    while (message.receiver.copy_some() + message.sender.copy_some() > 0) {
    }
    EXPECT_TRUE(message.receiver.take());
    EXPECT_EQ(message.received, message.sent);
  }
}

TEST(JointCopy, SuitsMessagesThatAreNotSmallAndThatItCanCount) {
  EXPECT_FALSE(JointCopy::suits(JointCopy::kMostStreamed));
  EXPECT_TRUE(JointCopy::suits(JointCopy::kMostStreamed + 1));
  EXPECT_TRUE(JointCopy::suits(size_t{1} << 38));
  EXPECT_FALSE(JointCopy::suits(size_t{1} << 40));
  EXPECT_FALSE(JointCopy::suits(~size_t{0} - kBlock));
}

}  // namespace
}  // namespace cohort::shm
