// Messages that lie in memory which both ranks map: they are copied once, and not through the ring.
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <thread>

#include "cohort/shm/transfer/channel.h"
#include "cohort/shm/transfer/exchange.h"
#include "tests/shm/exchange_ranks.h"

namespace cohort::shm {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;

constexpr size_t kRoom = size_t{64} << 20;
constexpr size_t kBlock = JointCopy::kBlockBytes;
constexpr size_t kLong = 20 * kBlock + 17;

Elements uint8s(size_t num_bytes) { return {DType::kUInt8, num_bytes}; }

Bell& bell_of(const ExchangeRanks& ranks, int rank) { return *reinterpret_cast<Bell*>(ranks.channel(rank, rank)); }

// Nothing has ever gone through the ring, which is the last in the memory of a channel.
bool is_ring_untouched(const ExchangeRanks& ranks, int source, int destination) {
  const Bytes zeroes(kNumChunks * kChunkBytes);
  return std::memcmp(ranks.channel(source, destination) + channel_memory_bytes() - zeroes.size(), zeroes.data(),
                     zeroes.size()) == 0;
}

// Memory of a rank: in its arena, or its own.
class Tensor {
 public:
  Tensor(uint8_t* in_arena, size_t num_bytes)
      : own_(in_arena ? 0 : num_bytes), data_(in_arena ? in_arena : own_.data()), num_bytes_(num_bytes) {}
  Tensor(Tensor&&) = default;
  uint8_t* data() { return data_; }
  Bytes bytes() const { return Bytes(data_, data_ + num_bytes_); }
  void fill(const Bytes& bytes) { std::memcpy(data_, bytes.data(), bytes.size()); }

 private:
  Bytes own_;
  uint8_t* data_;
  size_t num_bytes_;
};

struct Sides {
  bool is_sender_in_arena;
  bool is_receiver_in_arena;
};

// Messages of many sizes, at odd offsets; the bytes around the receiver's stay as they are.
void send_every_size(ExchangeRanks& ranks, Exchange& exchange, int rank, const Sides& sides) {
  constexpr size_t kBefore = 4099;
  size_t begin = 0;
  for (const size_t size : {size_t{300}, JointCopy::kMostStreamed, JointCopy::kMostStreamed + 1, kBlock, kBlock + 1,
                            2 * kBlock, 5 * kBlock - 1, JointCopy::kMostAtOnce + 1, kLong}) {
    const auto expected = pattern(size, static_cast<uint32_t>(size));
    const bool is_in_arena = rank == 0 ? sides.is_sender_in_arena : sides.is_receiver_in_arena;
    auto* const place = ranks.arena(rank) + begin + (rank == 0 ? 1 : 7);
    begin += size + 3 * kBefore;
    Tensor tensor(is_in_arena ? place : nullptr, size + 2 * kBefore);
    tensor.fill(Bytes(size + 2 * kBefore, 0x5a));
    if (rank == 0) std::memcpy(tensor.data() + kBefore, expected.data(), size);
    const auto transfer = rank == 0 ? exchange.send(tensor.data() + kBefore, uint8s(size), 1, 3)
                                    : exchange.receive(tensor.data() + kBefore, uint8s(size), 0, 3);
    expect_done(exchange, transfer);
    Bytes all(size + 2 * kBefore, 0x5a);
    std::memcpy(all.data() + kBefore, expected.data(), size);
    EXPECT_EQ(tensor.bytes(), all) << size;
    // The other end may still read, or write, what this one would use for the next.
    expect_done(exchange, rank == 0 ? exchange.receive(nullptr, {}, 1, 4) : exchange.send(nullptr, {}, 0, 4));
  }
}

TEST(ExchangeInPlace, CarriesMessagesOfEverySizeAndPlace) {
  for (const Sides sides : {Sides{true, true}, Sides{true, false}, Sides{false, true}, Sides{false, false}}) {
    ExchangeRanks ranks(2, kRoom);
    ranks.run([&](Exchange& exchange, int rank) { send_every_size(ranks, exchange, rank, sides); });
  }
}

TEST(ExchangeInPlace, CarriesThemBetweenProcesses) {
  for (const Sides sides : {Sides{true, true}, Sides{true, false}, Sides{false, true}}) {
    ExchangeRanks ranks(2, kRoom);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 2; ++rank) {
      pids.push_back(ranks.fork_rank(rank, [&](Exchange& exchange) { send_every_size(ranks, exchange, rank, sides); }));
    }
    for (const auto pid : pids) ranks.expect_success(pid);
  }
}

TEST(ExchangeInPlace, UsesTheRingOnlyIfNeitherSideIsInAnArena) {
  for (const Sides sides : {Sides{true, true}, Sides{true, false}, Sides{false, true}, Sides{false, false}}) {
    ExchangeRanks ranks(2, kRoom);
    ranks.run([&](Exchange& exchange, int rank) {
      const auto sent = pattern(kLong, 1);
      const bool is_in_arena = rank == 0 ? sides.is_sender_in_arena : sides.is_receiver_in_arena;
      Tensor tensor(is_in_arena ? ranks.arena(rank) : nullptr, kLong);
      if (rank == 0) tensor.fill(sent);
      expect_done(exchange, rank == 0 ? exchange.send(tensor.data(), uint8s(kLong), 1, 0)
                                      : exchange.receive(tensor.data(), uint8s(kLong), 0, 0));
      EXPECT_EQ(tensor.bytes(), sent);
    });
    EXPECT_EQ(is_ring_untouched(ranks, 0, 1), sides.is_sender_in_arena || sides.is_receiver_in_arena);
  }
}

// Both send first, several messages, and each places them differently.
TEST(ExchangeInPlace, SwapsBatchesInBothDirections) {
  constexpr int kNumMessages = 6;
  ExchangeRanks ranks(2, kRoom);
  ranks.run([&](Exchange& exchange, int rank) {
    std::vector<Tensor> sent, received;
    std::vector<TransferPtr> transfers;
    auto* next = ranks.arena(rank) + 64 * rank;
    for (int i = 0; i < kNumMessages; ++i) {
      const auto size = kLong + static_cast<size_t>(i);
      sent.emplace_back((i + rank) % 3 == 0 ? nullptr : next, size);
      received.emplace_back(i % 3 == 1 ? nullptr : next + size, size);
      next += 2 * size;
      sent.back().fill(pattern(size, static_cast<uint32_t>(10 * rank + i)));
    }
    for (int i = 0; i < kNumMessages; ++i) {
      const auto index = static_cast<size_t>(i);
      transfers.push_back(exchange.send(sent[index].data(), uint8s(kLong + index), 1 - rank, i));
    }
    for (int i = kNumMessages - 1; i >= 0; --i) {
      const auto index = static_cast<size_t>(i);
      transfers.push_back(exchange.receive(received[index].data(), uint8s(kLong + index), 1 - rank, i));
    }
    for (const auto& transfer : transfers) expect_done(exchange, transfer);
    for (int i = 0; i < kNumMessages; ++i) {
      const auto index = static_cast<size_t>(i);
      EXPECT_EQ(received[index].bytes(), pattern(kLong + index, static_cast<uint32_t>(10 * (1 - rank) + i)));
    }
  });
}

// More than a channel has notes for: the sender looks at none until all are taken.
TEST(ExchangeInPlace, TheReceiverTakesManyWhileTheSenderIsAway) {
  constexpr int kNumMessages = 3 * static_cast<int>(kNumOffers);
  constexpr size_t kSize = kBlock + 1;
  ExchangeRanks ranks(2, kRoom);
  std::barrier all_sent(2);
  ranks.run([&](Exchange& exchange, int rank) {
    std::vector<TransferPtr> transfers;
    for (int i = 0; i < kNumMessages; ++i) {
      auto* const data = ranks.arena(rank) + static_cast<size_t>(i) * kSize;
      const auto expected = pattern(kSize, static_cast<uint32_t>(i));
      if (rank == 0) {
        std::memcpy(data, expected.data(), kSize);
        transfers.push_back(exchange.send(data, uint8s(kSize), 1, i));
      }
    }
    all_sent.arrive_and_wait();
    for (int i = kNumMessages - 1; rank == 1 && i >= 0; --i) {
      auto* const data = ranks.arena(rank) + static_cast<size_t>(i) * kSize;
      expect_done(exchange, exchange.receive(data, uint8s(kSize), Exchange::kAnySource, i));
      EXPECT_EQ(Bytes(data, data + kSize), pattern(kSize, static_cast<uint32_t>(i)));
    }
    for (const auto& transfer : transfers) expect_done(exchange, transfer);
  });
}

TEST(ExchangeInPlace, SizesMustAgreeMessage) {
  ExchangeRanks ranks(2, kRoom);
  ranks.run([&](Exchange& exchange, int rank) {
    const auto transfer = rank == 0 ? exchange.send(ranks.arena(0), uint8s(kLong), 1, 7)
                                    : exchange.receive(ranks.arena(1), uint8s(kLong + 1), 0, 7);
    EXPECT_EQ(wait_text(exchange, transfer),
              "rank 0 and rank 1 disagree about the message with tag 7\n"
              "rank 0 sends   655377 uint8 (640.0 KiB)\n"
              "rank 1 expects 655378 uint8 (640.0 KiB)\n"
              "hint: give send and recv tensors of the same dtype and size; messages with one tag arrive in the order "
              "sent\n");
  });
}

// The receiver's end is moved by hand. The sender may write blocks before the message is taken, but it is not done.
TEST(ExchangeInPlace, ASendIsDoneWhenTheReceiverHasTakenAll) {
  ExchangeRanks ranks(2, kRoom);
  const auto sent = pattern(kLong, 1);
  std::memcpy(ranks.arena(0) + 5, sent.data(), kLong);
  const auto exchange = ranks.make(0);
  ChannelDestination destination(ranks.channel(0, 1), &bell_of(ranks, 0));
  const auto send = exchange->send(ranks.arena(0) + 5, uint8s(kLong), 1, 5);
  const auto header = destination.next();
  ASSERT_TRUE(header);
  EXPECT_EQ(header->place.region, Place::kInArena);
  EXPECT_EQ(header->place.offset, 5u);
  auto* const target = ranks.arena(1) + 11;
  JointCopy joint(
      destination.joint(), JointCopy::End::kReceiver, 1,
      {reinterpret_cast<std::byte*>(ranks.arena(0) + 5), reinterpret_cast<std::byte*>(target), kLong, nullptr});
  ASSERT_TRUE(joint.begin());
  destination.accept({1, true, {Place::kInArena, 11}});
  EXPECT_FALSE(exchange->wait(send, milliseconds(20)));
  EXPECT_EQ(Bytes(target, target + kLong), sent) << "the sender has copied everything";
  ASSERT_TRUE(joint.take());
  EXPECT_FALSE(exchange->wait(send, milliseconds(5)));
  destination.note_taken(1);
  expect_done(*exchange, send);
}

TEST(ExchangeInPlace, TimeoutInTheMiddleMessage) {
  ExchangeRanks ranks(2, kRoom);
  const auto exchange = ranks.make(0);
  ChannelDestination destination(ranks.channel(0, 1), &bell_of(ranks, 0));
  const auto send = exchange->send(ranks.arena(0), uint8s(kLong), 1, 5, {.timeout = milliseconds(100)});
  ASSERT_TRUE(destination.next());
  JointCopy joint(
      destination.joint(), JointCopy::End::kReceiver, 1,
      {reinterpret_cast<std::byte*>(ranks.arena(0)), reinterpret_cast<std::byte*>(ranks.arena(1)), kLong, nullptr});
  ASSERT_TRUE(joint.begin());
  joint.copy_some();
  destination.accept({1, true, {}});  // the sender may not write
  EXPECT_EQ(wait_text(*exchange, send),
            "rank 1 took 224.0 KiB of 640.0 KiB of the message with tag 5 from rank 0, and no more within 100 ms\n"
            "hint: see what rank 1 does instead of receiving, or allow more time\n");
  joint.copy_some();
  EXPECT_FALSE(joint.take()) << "its memory may have changed by now";
}

// The sender has gone on to something else by the time that the receiver comes, which knows nothing of it.
TEST(ExchangeInPlace, WhatTheSenderHasGivenUpIsNotReceived) {
  ExchangeRanks ranks(2, kRoom);
  const auto sender = ranks.make(0);
  const auto receiver = ranks.make(1);
  const auto send = sender->send(ranks.arena(0), uint8s(kLong), 1, 5, {.timeout = milliseconds(5)});
  EXPECT_EQ(wait_text(*sender, send),
            "rank 1 did not receive the message with tag 5 (640.0 KiB) from rank 0 within 5 ms\n"
            "hint: see what rank 1 does instead of receiving, or allow more time\n");
  std::memset(ranks.arena(0), 0xee, kLong);
  std::memset(ranks.arena(1), 0x11, kLong);
  const auto receive = receiver->receive(ranks.arena(1), uint8s(kLong), 0, 5, {.timeout = milliseconds(50)});
  EXPECT_EQ(wait_text(*receiver, receive),
            "rank 0 sent 0 B of 640.0 KiB of the message with tag 5 to rank 1, and no more within 50 ms\n"
            "hint: see what rank 0 does instead of sending, or allow more time\n");
  EXPECT_EQ(Bytes(ranks.arena(1), ranks.arena(1) + kLong), Bytes(kLong, 0x11));
}

// The receiver needs nobody to help it, and what it has not taken yet stays.
TEST(ExchangeInPlace, DestructionOfTheSenderGivesUpWhatIsNotTaken) {
  ExchangeRanks ranks(2, kRoom);
  auto sender = ranks.make(0);
  const auto receiver = ranks.make(1);
  const auto send = sender->send(ranks.arena(0), uint8s(kLong), 1, 5);
  expect_done(*receiver, receiver->receive(ranks.arena(1), uint8s(kLong), 0, 5));
  expect_done(*sender, send);
  const auto lost = sender->send(ranks.arena(0), uint8s(kLong), 1, 6);
  sender.reset();
  EXPECT_EQ(lost->failure()->kind, Failure::Kind::kAborted);
  ranks.set_lost(0);
  EXPECT_EQ(wait_text(*receiver, receiver->receive(ranks.arena(1), uint8s(kLong), 0, 6)), "rank 0 has left\n");
}

}  // namespace
}  // namespace cohort::shm
