#include "cohort/shm/transfer/channel.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "tests/shm/exchange_ranks.h"

namespace cohort::shm {
namespace {

struct ChannelEnds {
  ExchangeRanks memory{2};
  ChannelSource source{memory.channel(0, 1), reinterpret_cast<Bell*>(memory.channel(1, 1))};
  ChannelDestination destination{memory.channel(0, 1), reinterpret_cast<Bell*>(memory.channel(0, 0))};

  uint64_t offer(int32_t tag, const std::string& text) {
    return source.offer({text.size(), tag, DType::kInt8}, text.data());
  }
};

TEST(Channel, FitsIntoItsShareOfTheSegment) {
  EXPECT_LE(Exchange::channel_bytes(), size_t{144} << 10);
  EXPECT_EQ(Exchange::channel_bytes() % 4096, 0u);
}

TEST(Channel, CarriesSmallMessagesInTheirOffers) {
  ChannelEnds ends;
  EXPECT_FALSE(ends.destination.next());
  EXPECT_EQ(ends.offer(7, "hello"), 1u);
  EXPECT_EQ(ends.offer(-8, ""), 2u);
  const auto first = ends.destination.next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->tag, 7);
  EXPECT_EQ(first->num_bytes, 5u);
  EXPECT_EQ(first->dtype, DType::kInt8);
  std::string text(5, ' ');
  ends.destination.read_inline(1, text.data(), text.size());
  EXPECT_EQ(text, "hello");
  EXPECT_EQ(ends.destination.next()->tag, -8);
  EXPECT_EQ(ends.destination.num_seen(), 2u);
  EXPECT_FALSE(ends.destination.next());
}

TEST(Channel, HasRoomForAsManyOffersAsAreReleased) {
  ChannelEnds ends;
  for (uint64_t i = 0; i < kNumOffers; ++i) {
    EXPECT_TRUE(ends.source.has_room());
    ends.offer(static_cast<int32_t>(i), std::to_string(i));
  }
  EXPECT_FALSE(ends.source.has_room());
  for (uint64_t i = 0; i < kNumOffers; ++i) EXPECT_TRUE(ends.destination.next());
  EXPECT_FALSE(ends.destination.next());
  EXPECT_FALSE(ends.source.has_room());
  ends.destination.release(1);
  ASSERT_TRUE(ends.source.has_room());
  EXPECT_EQ(ends.offer(99, "again"), kNumOffers + 1);
  EXPECT_FALSE(ends.source.has_room());
  EXPECT_EQ(ends.destination.next()->tag, 99);
}

TEST(Channel, StreamsTheAcceptedMessageThroughTheRing) {
  ChannelEnds ends;
  const auto sent = pattern(kNumChunks * kChunkBytes + 3, 1);
  std::vector<uint8_t> received(sent.size());
  const auto* const from = reinterpret_cast<const std::byte*>(sent.data());
  auto* const to = reinterpret_cast<std::byte*>(received.data());
  const auto number = ends.source.offer({sent.size(), 0, DType::kUInt8}, from);
  EXPECT_EQ(ends.source.accepted().number, 0u);
  EXPECT_FALSE(ends.destination.next()->is_inline());
  ends.destination.accept({number});
  EXPECT_EQ(ends.source.accepted().number, number);
  EXPECT_EQ(ends.destination.consume(to, sent.size(), 0), 0u);
  EXPECT_EQ(ends.source.produce(from, sent.size(), 0), kNumChunks * kChunkBytes);
  EXPECT_EQ(ends.source.produce(from, sent.size(), kNumChunks * kChunkBytes), 0u) << "the ring is full";
  EXPECT_EQ(ends.destination.consume(to, sent.size(), 0), kNumChunks * kChunkBytes);
  EXPECT_EQ(ends.source.produce(from, sent.size(), kNumChunks * kChunkBytes), 3u);
  EXPECT_EQ(ends.destination.consume(to, sent.size(), kNumChunks * kChunkBytes), 3u);
  EXPECT_EQ(sent, received);
}

TEST(Channel, TellsWhereMessagesLieAndWhichAreTaken) {
  ChannelEnds ends;
  ends.source.offer({1000, 1, DType::kInt8, {3, 4096}}, nullptr);
  ends.source.offer({1000, 2, DType::kInt8}, nullptr);
  EXPECT_EQ(ends.destination.next()->place.offset, 4096u);
  EXPECT_FALSE(ends.destination.next()->place.is_shared());
  ends.destination.accept({.number = 2, .is_joint = true, .target = {5, 64}});
  const auto accepted = ends.source.accepted();
  EXPECT_EQ(accepted.number, 2u);
  EXPECT_TRUE(accepted.is_joint);
  EXPECT_EQ(accepted.target.region, 5u);
  EXPECT_EQ(accepted.target.offset, 64u);
  for (uint64_t i = 1; i <= kNumOffers; ++i) {
    EXPECT_TRUE(ends.destination.can_note_taken());
    ends.destination.note_taken(100 + i);
  }
  EXPECT_FALSE(ends.destination.can_note_taken());
  for (uint64_t i = 1; i <= kNumOffers; ++i) EXPECT_EQ(ends.source.next_taken(), 100 + i);
  EXPECT_EQ(ends.source.next_taken(), 0u);
  EXPECT_TRUE(ends.destination.can_note_taken());
}

TEST(Channel, KeepsTheFirstRefusal) {
  ChannelEnds ends;
  EXPECT_FALSE(ends.source.refusal());
  ends.destination.refuse({{16, 5, DType::kFloat32}, 8, DType::kInt64});
  ends.destination.refuse({{1, 1, DType::kBool}, 1, DType::kInt8});
  const auto refusal = ends.source.refusal();
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->sent.num_bytes, 16u);
  EXPECT_EQ(refusal->sent.tag, 5);
  EXPECT_EQ(refusal->sent.dtype, DType::kFloat32);
  EXPECT_EQ(refusal->expected_bytes, 8u);
  EXPECT_EQ(refusal->expected_dtype, DType::kInt64);
}

// The other process may be broken: whatever it wrote, this one stays within its own memory.
TEST(Channel, BelievesNothingBeyondItsBounds) {
  ChannelEnds ends;
  ends.offer(1, "x");
  // All words but the offer's number become huge, among them the dtype.
  constexpr size_t kWords = 10 * 64;
  std::memset(ends.memory.channel(0, 1), 0xff, kWords);
  std::memset(ends.memory.channel(0, 1) + kWords + sizeof(uint64_t), 0xff, 20);
  const auto header = ends.destination.next();
  ASSERT_TRUE(header);
  EXPECT_EQ(header->dtype, DType::kBytes);
  EXPECT_FALSE(header->is_inline());
  std::vector<std::byte> bytes(kChunkBytes + 1);
  EXPECT_EQ(ends.destination.consume(bytes.data(), bytes.size(), 0), bytes.size());
  EXPECT_FALSE(ends.source.produce(bytes.data(), bytes.size(), 0) > kNumChunks * kChunkBytes);
  EXPECT_EQ(ends.source.refusal()->expected_dtype, DType::kBytes);
  EXPECT_TRUE(ends.source.accepted().is_joint);
  EXPECT_NE(ends.source.next_taken(), 0u);
  EXPECT_FALSE(ends.destination.can_note_taken());
}

}  // namespace
}  // namespace cohort::shm
