// Random traffic with every byte checked, as threads and as processes, and processes that are killed in the middle.
#include <gtest/gtest.h>

#include <barrier>
#include <random>
#include <thread>

#include "cohort/shm/channel.h"
#include "cohort/shm/exchange.h"
#include "tests/shm/exchange_ranks.h"
#include "tests/shm/stress_seed.h"

namespace cohort::shm {
namespace {

using Bytes = std::vector<uint8_t>;

struct PlannedMessage {
  int source;
  int destination;
  int tag;
  size_t num_bytes;
  bool from_any;
};

// The same on every rank. Messages of one source, destination and tag have one size, so that their order may be any when
// receives are from any source; what arrives is recognised by its first bytes.
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

struct OpenReceive {
  TransferPtr transfer;
  Bytes bytes;
  PlannedMessage message;
};

// Receives of a rank may be posted in any order across tags, and are waited for in any order.
void run_stress(Exchange& exchange, int rank, const std::vector<PlannedMessage>& plan, uint32_t seed) {
  std::mt19937 random(seed + static_cast<uint32_t>(rank));
  std::vector<std::unique_ptr<OpenReceive>> receives;
  std::vector<std::pair<TransferPtr, Bytes>> sends;
  std::vector<std::vector<int>> num_sent(16, std::vector<int>(9));
  for (const auto& message : plan) {
    if (message.source == rank) {
      const int index = num_sent[static_cast<size_t>(message.destination)][static_cast<size_t>(message.tag)]++;
      Bytes bytes = pattern(message.num_bytes, seed_of(rank, message.tag, index));
      const auto* const data = bytes.data();
      const auto elements = bytes_of(bytes);
      sends.emplace_back(nullptr, std::move(bytes));
      sends.back().first = exchange.send(data, elements, message.destination, message.tag);
    } else if (message.destination == rank) {
      auto open = std::make_unique<OpenReceive>();
      open->message = message;
      open->bytes.resize(message.num_bytes);
      const int source = message.from_any ? Exchange::kAnySource : message.source;
      open->transfer = exchange.receive(open->bytes.data(), bytes_of(open->bytes), source, message.tag);
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
    ASSERT_EQ(open->bytes, pattern(open->bytes.size(), seed_of(source, open->message.tag, index)));
  }
  for (const auto& [transfer, bytes] : sends) expect_done(exchange, transfer);
}

TEST(ExchangeStress, RandomTrafficOfThreads) {
  const auto seed = stress_seed();
  for (uint32_t round = 0; round < 3; ++round) {
    const int world_size = 2 + static_cast<int>(round);
    const auto plan = plan_messages(world_size, 400, seed + round);
    ExchangeRanks ranks(world_size);
    ranks.run([&](Exchange& exchange, int rank) { run_stress(exchange, rank, plan, seed); });
  }
}

TEST(ExchangeStress, RandomTrafficOfProcesses) {
  const auto seed = stress_seed();
  const auto plan = plan_messages(3, 600, seed);
  ExchangeRanks ranks(3);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    pids.push_back(ranks.fork_rank(rank, [&](Exchange& exchange) { run_stress(exchange, rank, plan, seed); }));
  }
  for (const auto pid : pids) ranks.expect_success(pid);
}

// The other side learns of it, whatever state the channel was left in.
void kill_one_of_two(bool is_sender_killed) {
  std::mt19937 random(stress_seed());
  const auto bytes = pattern(3'000'000, 1);
  for (int i = 0; i < 15; ++i) {
    ExchangeRanks ranks(2);
    const auto stream = [&](Exchange& exchange, bool is_sender) -> std::string {
      Bytes received(bytes.size());
      while (true) {
        const auto transfer = is_sender ? exchange.send(bytes.data(), bytes_of(bytes), 1, 0)
                                        : exchange.receive(received.data(), bytes_of(received), 0, 0);
        const auto text = wait_text(exchange, transfer);
        if (text != "success") return text;
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

TEST(ExchangeStress, SenderKilledInTheMiddle) { kill_one_of_two(true); }
TEST(ExchangeStress, ReceiverKilledInTheMiddle) { kill_one_of_two(false); }

}  // namespace
}  // namespace cohort::shm
