#include "cohort/shm/transfer/exchange.h"

#include <gtest/gtest.h>

#include <barrier>
#include <set>
#include <thread>

#include "cohort/shm/transfer/channel.h"
#include "tests/shm/exchange_ranks.h"

namespace cohort::shm {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;

constexpr size_t kRingBytes = kNumChunks * kChunkBytes;
constexpr size_t kBig = 3 * kRingBytes + 17;

TEST(Exchange, SendsMessagesOfEverySize) {
  const std::vector<size_t> sizes = {0,
                                     1,
                                     kInlineBytes - 1,
                                     kInlineBytes,
                                     kInlineBytes + 1,
                                     (size_t{16} << 10) + 1,
                                     (size_t{32} << 10) + 1,
                                     kChunkBytes,
                                     kChunkBytes + 1,
                                     kRingBytes - 1,
                                     kRingBytes,
                                     kRingBytes + 1,
                                     kBig,
                                     0,
                                     4};
  ExchangeRanks ranks(2);
  ranks.run([&](Exchange& exchange, int rank) {
    for (const auto size : sizes) {
      const auto expected = pattern(size, static_cast<uint32_t>(size));
      Bytes received(size);
      const auto transfer = rank == 0 ? exchange.send(expected.data(), bytes_of(expected), 1, 3)
                                      : exchange.receive(received.data(), bytes_of(received), 0, 3);
      expect_done(exchange, transfer);
      if (rank == 1) {
        EXPECT_EQ(received, expected) << size;
        EXPECT_EQ(transfer->source(), 0);
      }
    }
  });
}

TEST(Exchange, LetsTagsOvertake) {
  const auto first = pattern(kBig, 1);
  const auto second = pattern(kBig, 2);
  ExchangeRanks ranks(2);
  ranks.run([&](Exchange& exchange, int rank) {
    if (rank == 0) {
      const auto one = exchange.send(first.data(), bytes_of(first), 1, 1);
      const auto two = exchange.send(second.data(), bytes_of(second), 1, 2);
      expect_done(exchange, one);
      expect_done(exchange, two);
      return;
    }
    Bytes received(kBig);
    expect_done(exchange, exchange.receive(received.data(), bytes_of(received), 0, 2));
    EXPECT_EQ(received, second);
    expect_done(exchange, exchange.receive(received.data(), bytes_of(received), 0, 1));
    EXPECT_EQ(received, first);
  });
}

// More than the offers of a channel, small and large ones, received from the last to the first.
TEST(Exchange, KeepsManyOutstandingMessages) {
  constexpr int kNumMessages = 3 * static_cast<int>(kNumOffers) + 5;
  ExchangeRanks ranks(2);
  ranks.run([&](Exchange& exchange, int rank) {
    std::vector<Bytes> messages;
    std::vector<TransferPtr> transfers;
    for (int tag = 0; tag < kNumMessages; ++tag) {
      const size_t size = tag % 10 == 9 ? 1000 : static_cast<size_t>(tag);
      messages.push_back(rank == 0 ? pattern(size, static_cast<uint32_t>(tag)) : Bytes(size));
    }
    for (int i = 0; i < kNumMessages; ++i) {
      const int tag = rank == 0 ? i : kNumMessages - 1 - i;
      auto& bytes = messages[static_cast<size_t>(tag)];
      if (rank == 0) {
        transfers.push_back(exchange.send(bytes.data(), bytes_of(bytes), 1, tag));
      } else {
        expect_done(exchange, exchange.receive(bytes.data(), bytes_of(bytes), 0, tag));
        EXPECT_EQ(bytes, pattern(bytes.size(), static_cast<uint32_t>(tag)));
      }
    }
    for (const auto& transfer : transfers) expect_done(exchange, transfer);
  });
}

TEST(Exchange, KeepsTheOrderWithinATag) {
  ExchangeRanks ranks(2);
  ranks.run([&](Exchange& exchange, int rank) {
    for (int i = 0; i < 500; ++i) {
      int value = i;
      const auto transfer = rank == 0 ? exchange.send(&value, {DType::kInt32, 1}, 1, 0)
                                      : exchange.receive(&value, {DType::kInt32, 1}, 0, 0);
      expect_done(exchange, transfer);
      EXPECT_EQ(value, i);
    }
  });
}

TEST(Exchange, ReceivesFromAnySourceInTurns) {
  ExchangeRanks ranks(4);
  ranks.run([&](Exchange& exchange, int rank) {
    constexpr int kNumEach = 30;
    if (rank != 0) {
      for (int i = 0; i < kNumEach; ++i) {
        const int value = rank * 1000 + i;
        expect_done(exchange, exchange.send(&value, {DType::kInt32, 1}, 0, 5));
      }
      expect_done(exchange, exchange.send(nullptr, {}, 0, 6));
      return;
    }
    std::vector<int> next(4);
    std::vector<int> sources;
    // When all have sent, the order shows the turns.
    for (int i = 1; i < 4; ++i) {
      const auto ready = exchange.receive(nullptr, {}, Exchange::kAnySource, 6);
      expect_done(exchange, ready);
    }
    for (int i = 0; i < 3 * kNumEach; ++i) {
      int value = 0;
      const auto transfer = exchange.receive(&value, {DType::kInt32, 1}, Exchange::kAnySource, 5);
      expect_done(exchange, transfer);
      const int source = transfer->source();
      EXPECT_EQ(source, i < 3 ? source : sources[static_cast<size_t>(i - 3)]);
      sources.push_back(source);
      EXPECT_EQ(value, source * 1000 + next[static_cast<size_t>(source)]++);
    }
    EXPECT_EQ(std::set<int>(sources.begin(), sources.begin() + 3).size(), 3u);
  });
}

TEST(Exchange, ServesAnySourceAndNamedReceivesInPostingOrder) {
  ExchangeRanks ranks(2);
  std::barrier both_posted(2);
  ranks.run([&](Exchange& exchange, int rank) {
    int values[2] = {1, 2};
    if (rank == 0) {
      both_posted.arrive_and_wait();
      for (auto& value : values) expect_done(exchange, exchange.send(&value, {DType::kInt32, 1}, 1, 5));
      return;
    }
    const auto any = exchange.receive(&values[1], {DType::kInt32, 1}, Exchange::kAnySource, 5);
    const auto named = exchange.receive(&values[0], {DType::kInt32, 1}, 0, 5);
    both_posted.arrive_and_wait();
    expect_done(exchange, named);
    expect_done(exchange, any);
    EXPECT_EQ(values[1], 1);
    EXPECT_EQ(values[0], 2);
  });
}

TEST(Exchange, SwapsLargeBatches) {
  ExchangeRanks ranks(2);
  ranks.run([&](Exchange& exchange, int rank) {
    std::vector<Bytes> sent;
    std::vector<Bytes> received;
    std::vector<TransferPtr> transfers;
    for (int i = 0; i < 4; ++i) {
      sent.push_back(pattern(kBig + static_cast<size_t>(i), static_cast<uint32_t>(10 * rank + i)));
      received.emplace_back(kBig + static_cast<size_t>(i));
    }
    for (size_t i = 0; i < 4; ++i) {
      transfers.push_back(exchange.send(sent[i].data(), bytes_of(sent[i]), 1 - rank, static_cast<int>(i)));
      transfers.push_back(exchange.receive(received[i].data(), bytes_of(received[i]), 1 - rank, static_cast<int>(i)));
    }
    for (const auto& transfer : transfers) expect_done(exchange, transfer);
    for (int i = 0; i < 4; ++i) {
      const auto& got = received[static_cast<size_t>(i)];
      EXPECT_EQ(got, pattern(got.size(), static_cast<uint32_t>(10 * (1 - rank) + i)));
    }
  });
}

TEST(Exchange, PassesMessagesAroundARing) {
  ExchangeRanks ranks(4);
  ranks.run([&](Exchange& exchange, int rank) {
    auto held = pattern(kBig, static_cast<uint32_t>(rank));
    Bytes incoming(kBig);
    for (int step = 1; step <= 4; ++step) {
      const auto receive = exchange.receive(incoming.data(), bytes_of(incoming), (rank + 3) % 4, step);
      const auto send = exchange.send(held.data(), bytes_of(held), (rank + 1) % 4, step);
      expect_done(exchange, send);
      expect_done(exchange, receive);
      std::swap(held, incoming);
      EXPECT_EQ(held, pattern(kBig, static_cast<uint32_t>((rank + 4 - step) % 4)));
    }
  });
}

// Nobody waits on rank 0 until rank 1 has everything.
TEST(Exchange, ProgressesWithoutAnybodyWaiting) {
  const auto bytes = pattern(20 * kBig, 1);
  ExchangeRanks ranks(2);
  std::barrier received_all(2);
  ranks.run([&](Exchange& exchange, int rank) {
    Bytes received(bytes.size());
    const auto transfer = rank == 0 ? exchange.send(bytes.data(), bytes_of(bytes), 1, 0)
                                    : exchange.receive(received.data(), bytes_of(received), 0, 0);
    if (rank == 1) {
      expect_done(exchange, transfer);
      EXPECT_EQ(received, bytes);
    }
    received_all.arrive_and_wait();
    while (!transfer->is_done()) std::this_thread::yield();
    EXPECT_EQ(transfer->failure(), nullptr);
  });
}

// The helper has gone to sleep in between, and the thread that waited leaves another transfer behind.
TEST(Exchange, ProgressesAfterQuietTimes) {
  ExchangeRanks ranks(2);
  std::barrier next(2);
  ranks.run([&](Exchange& exchange, int rank) {
    Bytes bytes(kBig);
    for (int i = 0; i < 2; ++i) {
      int value = 0;
      const auto small = rank == 0 ? exchange.send(&value, {DType::kInt32, 1}, 1, 1)
                                   : exchange.receive(&value, {DType::kInt32, 1}, 0, 1);
      const auto large = rank == 0 ? exchange.send(bytes.data(), bytes_of(bytes), 1, 2)
                                   : exchange.receive(bytes.data(), bytes_of(bytes), 0, 2);
      expect_done(exchange, small);
      if (rank == 1) expect_done(exchange, large);
      next.arrive_and_wait();
      while (!large->is_done()) std::this_thread::yield();
      std::this_thread::sleep_for(milliseconds(150));
    }
  });
}

TEST(Exchange, ServesSeveralThreadsOfARank) {
  ExchangeRanks ranks(2);
  ranks.run([&](Exchange& exchange, int rank) {
    std::vector<std::thread> threads;
    for (int tag = 0; tag < 3; ++tag) {
      threads.emplace_back([&, tag] {
        for (int i = 0; i < 100; ++i) {
          auto bytes = rank == 0 ? pattern(static_cast<size_t>(i * 40), static_cast<uint32_t>(tag)) : Bytes(i * 40);
          const auto transfer = rank == 0 ? exchange.send(bytes.data(), bytes_of(bytes), 1, tag)
                                          : exchange.receive(bytes.data(), bytes_of(bytes), 0, tag);
          expect_done(exchange, transfer);
          EXPECT_EQ(bytes, pattern(static_cast<size_t>(i * 40), static_cast<uint32_t>(tag)));
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
}

TEST(Exchange, WaitsForALimitedTime) {
  ExchangeRanks ranks(2);
  const auto exchange = ranks.make(0);
  int value = 0;
  const auto transfer = exchange->receive(&value, {DType::kInt32, 1}, 1, 0);
  EXPECT_FALSE(exchange->wait(transfer, milliseconds(5)));
  EXPECT_FALSE(transfer->is_done());
  EXPECT_EQ(transfer->failure(), nullptr);
  const auto other = ranks.make(1);
  value = 17;
  expect_done(*other, other->send(&value, {DType::kInt32, 1}, 0, 0));
  EXPECT_TRUE(exchange->wait(transfer, milliseconds::max()));
  EXPECT_EQ(value, 17);
}

}  // namespace
}  // namespace cohort::shm
