// Random traffic with every byte checked, as threads and as processes, and processes that are killed in the middle.
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <random>
#include <thread>

#include "cohort/base/system/env.h"
#include "cohort/shm/transfer/channel.h"
#include "cohort/shm/transfer/exchange.h"
#include "tests/shm/exchange_ranks.h"
#include "tests/shm/stress_seed.h"

namespace cohort::shm {
namespace {

using Bytes = std::vector<uint8_t>;

uint32_t num_rounds(uint32_t usual) {
  return static_cast<uint32_t>(base::env_int("COHORT_STRESS_RUNS", 1).value().value_or(usual));
}

struct PlannedMessage {
  int source;
  int destination;
  int tag;
  size_t num_bytes;
  bool from_any;
};

// The same on every rank. Messages of one source, destination and tag have one size, so that their order may be any when
// receives are from any source; what arrives is recognized by its first bytes.
std::vector<PlannedMessage> plan_messages(int world_size, int num_messages, uint32_t seed) {
  std::mt19937 random(seed);
  const size_t sizes[] = {0, 4, 40, kInlineBytes, kInlineBytes + 1, 5000, kChunkBytes, 2 * kChunkBytes + 1, 300'000};
  std::vector<PlannedMessage> plan;
  for (int i = 0; i < num_messages; ++i) {
    const int source = static_cast<int>(random() % static_cast<uint32_t>(world_size));
    const int step = 1 + static_cast<int>(random() % static_cast<uint32_t>(world_size - 1));
    const int tag = static_cast<int>(random() % 9);
    plan.push_back({source, (source + step) % world_size, tag, sizes[tag], tag == 2});
  }
  return plan;
}

uint32_t seed_of(int source, int tag, int index) {
  return static_cast<uint32_t>(source * 100'000 + tag * 10'000 + index);
}

// Room of a rank in its arena, from front to back, at places of no particular order.
class Room {
 public:
  explicit Room(uint8_t* begin) : next_(begin) {}
  uint8_t* take(size_t num_bytes, std::mt19937& random) {
    auto* const taken = next_ + random() % 5000;
    next_ = taken + num_bytes;
    return taken;
  }

 private:
  uint8_t* next_;
};
constexpr size_t kArenaBytes = size_t{256} << 20;

// In the arena, or somewhere else, as the random number says.
struct Buffer {
  Buffer(size_t size, Room& room, std::mt19937& random)
      : num_bytes(size),
        own(random() % 2 == 0 ? size : 0),
        data(own.size() == size ? own.data() : room.take(size, random)) {}
  Bytes bytes() const { return Bytes(data, data + num_bytes); }
  Elements elements() const { return {DType::kUInt8, num_bytes}; }

  size_t num_bytes;
  Bytes own;
  uint8_t* data;
};

struct OpenReceive {
  TransferPtr transfer;
  std::unique_ptr<Buffer> buffer;
  PlannedMessage message;
};

// Receives of a rank may be posted in any order across tags, and are waited for in any order.
void run_stress(Exchange& exchange, int rank, const std::vector<PlannedMessage>& plan, uint32_t seed, Room room) {
  std::mt19937 random(seed + static_cast<uint32_t>(rank));
  std::vector<std::unique_ptr<OpenReceive>> receives;
  std::vector<std::pair<TransferPtr, std::unique_ptr<Buffer>>> sends;
  std::vector<std::vector<int>> num_sent(16, std::vector<int>(9));
  for (const auto& message : plan) {
    if (message.source == rank) {
      const int index = num_sent[static_cast<size_t>(message.destination)][static_cast<size_t>(message.tag)]++;
      const Bytes bytes = pattern(message.num_bytes, seed_of(rank, message.tag, index));
      auto buffer = std::make_unique<Buffer>(bytes.size(), room, random);
      std::copy(bytes.begin(), bytes.end(), buffer->data);
      auto transfer = exchange.send(buffer->data, buffer->elements(), message.destination, message.tag);
      sends.emplace_back(std::move(transfer), std::move(buffer));
    } else if (message.destination == rank) {
      auto open = std::make_unique<OpenReceive>();
      open->message = message;
      open->buffer = std::make_unique<Buffer>(message.num_bytes, room, random);
      const int source = message.from_any ? Exchange::kAnySource : message.source;
      open->transfer = exchange.receive(open->buffer->data, open->buffer->elements(), source, message.tag);
      receives.push_back(std::move(open));
    }
    if (random() % 8 == 0 && !receives.empty())
      exchange.wait(receives[random() % receives.size()]->transfer, std::chrono::milliseconds(1));
  }
  std::vector<std::vector<int>> num_received(16, std::vector<int>(9));
  for (const auto& open : receives) {
    expect_done(exchange, open->transfer);
    const int source = open->transfer->source();
    if (!open->message.from_any) {
      EXPECT_EQ(source, open->message.source);
    }
    const int index = num_received[static_cast<size_t>(source)][static_cast<size_t>(open->message.tag)]++;
    ASSERT_EQ(open->buffer->bytes(), pattern(open->message.num_bytes, seed_of(source, open->message.tag, index)));
  }
  for (const auto& [transfer, buffer] : sends) expect_done(exchange, transfer);
}

TEST(ExchangeStress, RandomTrafficOfThreads) {
  const auto seed = stress_seed();
  for (uint32_t round = 0; round < num_rounds(3); ++round) {
    const int world_size = 2 + static_cast<int>(round % 3);
    const auto plan = plan_messages(world_size, 400, seed + round);
    ExchangeRanks ranks(world_size, kArenaBytes);
    ranks.run(
        [&](Exchange& exchange, int rank) { run_stress(exchange, rank, plan, seed + round, Room(ranks.arena(rank))); });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ExchangeStress, RandomTrafficOfProcesses) {
  const auto seed = stress_seed();
  for (uint32_t round = 0; round < num_rounds(1); ++round) {
    const int world_size = 3 - static_cast<int>(round % 2);
    const auto plan = plan_messages(world_size, 600, seed + round);
    ExchangeRanks ranks(world_size, kArenaBytes);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < world_size; ++rank) {
      pids.push_back(ranks.fork_rank(
          rank, [&](Exchange& exchange) { run_stress(exchange, rank, plan, seed + round, Room(ranks.arena(rank))); }));
    }
    for (const auto pid : pids) ranks.expect_success(pid);
    if (testing::Test::HasFailure()) return;
  }
}

// The other side learns of it, whatever state the channel was left in.
void kill_one_of_two(bool is_sender_killed, bool is_in_arena) {
  std::mt19937 random(stress_seed());
  const auto bytes = pattern(3'000'000, 1);
  for (int i = 0; i < 15; ++i) {
    ExchangeRanks ranks(2, kArenaBytes);
    if (is_in_arena) std::copy(bytes.begin(), bytes.end(), ranks.arena(0));
    const auto* const sent = is_in_arena ? ranks.arena(0) : bytes.data();
    const auto stream = [&](Exchange& exchange, bool is_sender) -> std::string {
      Bytes own(bytes.size());
      auto* const received = is_in_arena ? ranks.arena(1) : own.data();
      while (true) {
        const auto transfer =
            is_sender ? exchange.send(sent, bytes_of(bytes), 1, 0) : exchange.receive(received, bytes_of(bytes), 0, 0);
        const auto text = wait_text(exchange, transfer);
        if (text != "success") return text;
        EXPECT_TRUE(is_sender || std::memcmp(received, bytes.data(), bytes.size()) == 0);
        if (!is_sender) std::memset(received, 0, bytes.size());
      }
    };
    const int victim = is_sender_killed ? 0 : 1;
    const pid_t pid = ranks.fork_rank(victim, [&](Exchange& exchange) { stream(exchange, is_sender_killed); });
    const auto exchange = ranks.make(1 - victim);
    std::string text;
    std::thread survivor([&] { text = stream(*exchange, !is_sender_killed); });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 10'000));
    ranks.kill_rank(victim, pid);
    survivor.join();
    EXPECT_EQ(text, is_sender_killed ? "rank 0 has left\n" : "rank 1 has left\n");
  }
}

TEST(ExchangeStress, SenderKilledInTheMiddle) { kill_one_of_two(true, false); }
TEST(ExchangeStress, ReceiverKilledInTheMiddle) { kill_one_of_two(false, false); }
TEST(ExchangeStress, SenderKilledInTheMiddleOfAJointCopy) { kill_one_of_two(true, true); }
TEST(ExchangeStress, ReceiverKilledInTheMiddleOfAJointCopy) { kill_one_of_two(false, true); }

}  // namespace
}  // namespace cohort::shm
