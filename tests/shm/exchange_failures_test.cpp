#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "cohort/shm/transfer/channel.h"
#include "cohort/shm/transfer/exchange.h"
#include "cohort/shm/transfer/transfer_text.h"
#include "tests/shm/exchange_ranks.h"

namespace cohort::shm {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;

constexpr size_t kLarge = 4 * kNumChunks * kChunkBytes;

CallOptions within(int num_milliseconds) { return {.timeout = milliseconds(num_milliseconds)}; }

TEST(ExchangeFailure, WrongArgumentsMessage) {
  ExchangeRanks ranks(2);
  const auto exchange = ranks.make(0);
  int value = 0;
  const Elements one{DType::kInt32, 1};
  EXPECT_EQ(wait_text(*exchange, exchange->send(&value, one, 0, 0)),
            "rank 0 cannot send to itself\nhint: copy the tensor instead\n");
  EXPECT_EQ(wait_text(*exchange, exchange->receive(&value, one, 0, 0)),
            "rank 0 cannot receive from itself\nhint: copy the tensor instead\n");
  EXPECT_EQ(wait_text(*exchange, exchange->send(&value, one, 2, 0)),
            "rank 2 is not in the group of 2 ranks\nhint: give a rank from 0 to 1\n");
  EXPECT_EQ(wait_text(*exchange, exchange->send(&value, one, Exchange::kAnySource, 0)),
            "rank -1 is not in the group of 2 ranks\nhint: give a rank from 0 to 1\n");
  EXPECT_EQ(wait_text(*exchange, exchange->send(nullptr, one, 1, 0)), "no memory was given for 4 bytes\n");
  EXPECT_EQ(exchange->send(nullptr, one, 1, 0)->failure()->kind, Failure::Kind::kArgument);
  EXPECT_EQ(ranks.num_reports(0), 0);
  expect_done(*exchange, exchange->send(&value, one, 1, 0));
}

constexpr const char* kLargeMismatch =
    "rank 0 and rank 1 disagree about the message with tag 7\n"
    "rank 0 sends   1024 float32 (4.0 KiB)\n"
    "rank 1 expects 1025 float32 (4.0 KiB)\n"
    "hint: give send and recv tensors of the same dtype and size; messages with one tag arrive in the order sent\n";

TEST(ExchangeFailure, SizeMismatchMessage) {
  ExchangeRanks ranks(2);
  ranks.run([&](Exchange& exchange, int rank) {
    std::vector<float> values(2000);
    const auto transfer = rank == 0 ? exchange.send(values.data(), {DType::kFloat32, 1024}, 1, 7)
                                    : exchange.receive(values.data(), {DType::kFloat32, 1025}, 0, 7);
    EXPECT_EQ(wait_text(exchange, transfer), kLargeMismatch);
    EXPECT_EQ(transfer->failure()->kind, Failure::Kind::kMismatch);
    EXPECT_GE(ranks.num_reports(rank), 1);
    // The two have parted.
    EXPECT_EQ(wait_text(exchange, exchange.send(values.data(), {DType::kFloat32, 1}, 1 - rank, 8)), kLargeMismatch);
  });
}

// A small message is done when it is in the channel: its sender learns of the refusal in the next transfer.
TEST(ExchangeFailure, DtypeMismatchOfASmallMessageReachesTheSendersNextTransferMessage) {
  constexpr const char* kText =
      "rank 0 and rank 1 disagree about the message with tag 7\n"
      "rank 0 sends   2 int64 (16 B)\n"
      "rank 1 expects 16 bytes\n"
      "hint: give send and recv tensors of the same dtype and size; messages with one tag arrive in the order sent\n";
  ExchangeRanks ranks(2);
  ranks.run([&](Exchange& exchange, int rank) {
    int64_t values[2] = {};
    if (rank == 1) {
      EXPECT_EQ(wait_text(exchange, exchange.receive(values, {DType::kBytes, 16}, Exchange::kAnySource, 7)), kText);
      return;
    }
    expect_done(exchange, exchange.send(values, {DType::kInt64, 2}, 1, 7));
    EXPECT_EQ(wait_text(exchange, exchange.receive(values, {DType::kInt64, 2}, 1, 0)), kText);
  });
}

TEST(ExchangeFailure, AMismatchEndsOtherReceivesFromThatRank) {
  ExchangeRanks ranks(2);
  const auto sender = ranks.make(0);
  const auto receiver = ranks.make(1);
  int values[2] = {};
  const Elements one{DType::kInt32, 1};
  const auto first = receiver->receive(values, {DType::kInt32, 2}, 0, 5);
  expect_done(*sender, sender->send(values, one, 1, 5));
  expect_done(*sender, sender->send(values, one, 1, 6));
  // Posting it is what finds the mismatch of the one before.
  const auto second = receiver->receive(values, one, 0, 6);
  EXPECT_EQ(receiver->wait(first), true);
  EXPECT_EQ(wait_text(*receiver, second), wait_text(*receiver, first));
  EXPECT_EQ(first->failure()->kind, Failure::Kind::kMismatch);
}

TEST(ExchangeFailure, ReceiveTimeoutMessage) {
  ExchangeRanks ranks(3);
  const auto exchange = ranks.make(0, milliseconds(20));
  const auto peer = ranks.make(1);
  int value = 0;
  const Elements one{DType::kInt32, 1};
  auto transfer = exchange->receive(&value, one, 1, 5);
  EXPECT_EQ(wait_text(*exchange, transfer),
            "rank 1 sent nothing with tag 5 to rank 0 within 20 ms\n"
            "hint: see what rank 1 does instead of sending, or allow more time\n");
  EXPECT_EQ(transfer->failure()->kind, Failure::Kind::kTimeout);
  EXPECT_EQ(ranks.num_reports(0), 1);
  for (const int tag : {4, 3, 4}) expect_done(*peer, peer->send(&value, one, 0, tag));
  EXPECT_EQ(wait_text(*exchange, exchange->receive(&value, one, 1, 5, within(10))),
            "rank 1 sent nothing with tag 5 to rank 0 within 10 ms\n"
            "rank 1 offers tags 3 and 4, rank 0 waits for tag 5\n"
            "hint: give send and recv the same tag\n");
  const auto third = ranks.make(2);
  expect_done(*third, third->send(&value, one, 0, 9));
  EXPECT_EQ(wait_text(*exchange, exchange->receive(&value, one, Exchange::kAnySource, 5, within(10))),
            "no rank sent anything with tag 5 to rank 0 within 10 ms\n"
            "rank 1 offers tags 3 and 4, rank 0 waits for tag 5\n"
            "rank 2 offers tag 9, rank 0 waits for tag 5\n"
            "hint: give send and recv the same tag\n");
  // Nothing was under way, so the two go on.
  value = 7;
  expect_done(*peer, peer->send(&value, one, 0, 5));
  value = 0;
  expect_done(*exchange, exchange->receive(&value, one, 1, 5));
  EXPECT_EQ(value, 7);
}

TEST(ExchangeFailure, SendTimeoutMessage) {
  ExchangeRanks ranks(2);
  const auto exchange = ranks.make(0);
  const Bytes bytes(kLarge);
  EXPECT_EQ(wait_text(*exchange, exchange->send(bytes.data(), bytes_of(bytes), 1, 5, within(10))),
            "rank 1 did not receive the message with tag 5 (512.0 KiB) from rank 0 within 10 ms\n"
            "hint: see what rank 1 does instead of receiving, or allow more time\n");
}

// The receiver's end is moved by hand, and stops.
TEST(ExchangeFailure, TimeoutInTheMiddleMessage) {
  ExchangeRanks ranks(2);
  const Bytes bytes(kLarge);
  const auto exchange = ranks.make(0);
  ChannelDestination destination(ranks.channel(0, 1), reinterpret_cast<Bell*>(ranks.channel(0, 0)));
  const auto send = exchange->send(bytes.data(), bytes_of(bytes), 1, 5, within(1500));
  ASSERT_TRUE(destination.next());
  destination.accept({1});
  EXPECT_EQ(wait_text(*exchange, send),
            "rank 1 took 128.0 KiB of 512.0 KiB of the message with tag 5 from rank 0, and no more within 1.5 s\n"
            "hint: see what rank 1 does instead of receiving, or allow more time\n");

  ExchangeRanks others(2);
  const auto receiver = others.make(0);
  ChannelSource source(others.channel(1, 0), reinterpret_cast<Bell*>(others.channel(0, 0)));
  Bytes received(kLarge);
  const auto receive = receiver->receive(received.data(), bytes_of(received), 1, 5, within(1500));
  source.offer({kLarge, 5, DType::kUInt8}, nullptr);
  EXPECT_FALSE(receiver->wait(receive, milliseconds(1)));
  source.produce(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), 0);
  EXPECT_EQ(wait_text(*receiver, receive),
            "rank 1 sent 128.0 KiB of 512.0 KiB of the message with tag 5 to rank 0, and no more within 1.5 s\n"
            "hint: see what rank 1 does instead of sending, or allow more time\n");
}

TEST(ExchangeFailure, TimesOutWithoutAnybodyWaiting) {
  ExchangeRanks ranks(2);
  const auto exchange = ranks.make(0);
  int value = 0;
  const auto transfer = exchange->receive(&value, {DType::kInt32, 1}, 1, 5, within(10));
  while (!transfer->is_done()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(transfer->failure()->kind, Failure::Kind::kTimeout);
}

TEST(ExchangeFailure, RanksAreCalledByTheirNumbersInTheJobMessage) {
  ExchangeRanks ranks(2);
  const auto exchange = ranks.make(0, milliseconds(5), {4, 6});
  const auto peer = ranks.make(1, milliseconds(5), {4, 6});
  int value = 0;
  const Elements one{DType::kInt32, 1};
  EXPECT_EQ(wait_text(*exchange, exchange->send(&value, one, 0, 0)),
            "rank 4 cannot send to itself\nhint: copy the tensor instead\n");
  expect_done(*peer, peer->send(&value, one, 0, 1));
  EXPECT_EQ(wait_text(*exchange, exchange->receive(&value, one, 1, 2)),
            "rank 6 sent nothing with tag 2 to rank 4 within 5 ms\n"
            "rank 6 offers tag 1, rank 4 waits for tag 2\n"
            "hint: give send and recv the same tag\n");
  EXPECT_EQ(wait_text(*exchange, exchange->receive(&value, {DType::kBytes, 0}, 1, 1)),
            "rank 6 and rank 4 disagree about the message with tag 1\n"
            "rank 6 sends   1 int32 (4 B)\n"
            "rank 4 expects 0 bytes\n"
            "hint: give send and recv tensors of the same dtype and size; messages with one tag arrive in the order "
            "sent\n");
}

TEST(ExchangeFailure, ListsOfTagsStayShort) {
  EXPECT_EQ(list_tags({3}), "tag 3");
  EXPECT_EQ(list_tags({3, 4}), "tags 3 and 4");
  EXPECT_EQ(list_tags({1, 2, 3, 4, 5}), "tags 1, 2, 3, 4 and 5");
  EXPECT_EQ(list_tags({1, 2, 3, 4, 5, 6}), "tags 1, 2, 3, 4 and 2 more");
}

TEST(ExchangeFailure, ReceivesWhatARankSentBeforeItLeft) {
  ExchangeRanks ranks(2);
  const auto small = pattern(100, 1);
  const auto large = pattern(kNumChunks * kChunkBytes + 100, 2);
  const auto receiver = ranks.make(1);
  Bytes first(large.size());
  const auto transfer = receiver->receive(first.data(), bytes_of(first), 0, 1);
  {
    const auto sender = ranks.make(0);
    const auto send = sender->send(large.data(), bytes_of(large), 1, 1);
    expect_done(*sender, sender->send(small.data(), bytes_of(small), 1, 2));
    expect_done(*sender, send);
  }
  ranks.set_lost(0);
  std::this_thread::sleep_for(milliseconds(60));
  expect_done(*receiver, transfer);
  EXPECT_EQ(first, large);
  Bytes second(100);
  expect_done(*receiver, receiver->receive(second.data(), bytes_of(second), 0, 2));
  EXPECT_EQ(second, small);
  const auto third = receiver->receive(second.data(), bytes_of(second), 0, 2);
  EXPECT_EQ(wait_text(*receiver, third), "rank 0 has left\n");
  EXPECT_EQ(third->failure()->kind, Failure::Kind::kLostRank);
}

TEST(ExchangeFailure, AReceiveFromAnySourceFailsWhenAllHaveLeft) {
  ExchangeRanks ranks(3);
  const auto exchange = ranks.make(0);
  int value = 0;
  const auto transfer = exchange->receive(&value, {DType::kInt32, 1}, Exchange::kAnySource, 0);
  ranks.set_lost(1);
  EXPECT_FALSE(exchange->wait(transfer, milliseconds(120)));
  ranks.set_lost(2);
  EXPECT_EQ(wait_text(*exchange, transfer), "rank 2 has left\n");
}

TEST(ExchangeFailure, AbortEndsWhatIsPending) {
  ExchangeRanks ranks(2);
  const auto exchange = ranks.make(0);
  Bytes bytes(kLarge);
  const auto send = exchange->send(bytes.data(), bytes_of(bytes), 1, 0);
  const auto receive = exchange->receive(bytes.data(), bytes_of(bytes), Exchange::kAnySource, 0);
  std::thread waiter([&] { EXPECT_EQ(wait_text(*exchange, receive), "rank 0 was aborted\n"); });
  std::this_thread::sleep_for(milliseconds(5));
  ranks.set_aborted(0);
  exchange->interrupt();
  waiter.join();
  EXPECT_EQ(wait_text(*exchange, send), "rank 0 was aborted\n");
  EXPECT_EQ(wait_text(*exchange, exchange->send(bytes.data(), {DType::kInt8, 1}, 1, 0)), "rank 0 was aborted\n");
  EXPECT_EQ(ranks.num_reports(0), 0);
}

TEST(ExchangeFailure, AnObstacleEndsTheWait) {
  ExchangeRanks ranks(2);
  const auto exchange = ranks.make(0);
  int value = 0;
  TransferPtr transfer;
  {
    const std::function<std::string()> find = [] { return std::string("the launcher is gone"); };
    transfer = exchange->receive(&value, {DType::kInt32, 1}, 1, 0, {.find_obstacle = &find});
  }
  EXPECT_EQ(wait_text(*exchange, transfer), "the launcher is gone\n");
  EXPECT_EQ(transfer->failure()->kind, Failure::Kind::kObstacle);
}

TEST(ExchangeFailure, DestructionEndsWhatIsPending) {
  ExchangeRanks ranks(2);
  auto exchange = ranks.make(0);
  Bytes bytes(kLarge);
  const auto send = exchange->send(bytes.data(), bytes_of(bytes), 1, 0);
  const auto receive = exchange->receive(bytes.data(), bytes_of(bytes), 1, 0);
  exchange.reset();
  for (const auto& transfer : {send, receive}) {
    ASSERT_TRUE(transfer->is_done());
    EXPECT_EQ(transfer->failure()->kind, Failure::Kind::kAborted);
    EXPECT_EQ(transfer->failure()->causes[0], "the group was destroyed before the transfer was done");
  }
}

}  // namespace
}  // namespace cohort::shm
