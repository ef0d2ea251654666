#include "tests/shm/exchange_ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <thread>

#include "cohort/base/text/text.h"
#include "tests/shm/ranks.h"

namespace cohort::shm {

constexpr int kMaxRanks = 16;

struct ExchangeRanks::Shared {
  std::atomic<bool> is_lost[kMaxRanks];
  std::atomic<bool> is_aborted[kMaxRanks];
};

class ExchangeRanks::Notes final : public Neighbors {
 public:
  Notes(Shared& shared, int rank) : shared_(shared), rank_(rank) {}
  Outcome failure() override {
    if (!shared_.is_aborted[rank_].load()) return nullptr;
    return fail({Failure::Kind::kAborted, {fmt::format("rank {} was aborted", rank_)}, ""});
  }
  Outcome look(int peer) override {
    if (!shared_.is_lost[peer].load()) return nullptr;
    return fail({Failure::Kind::kLostRank, {fmt::format("rank {} has left", peer)}, ""});
  }
  void report(const Outcome&) override { ++num_reports; }

  std::atomic<int> num_reports = 0;

 private:
  Shared& shared_;
  const int rank_;
};

ExchangeRanks::ExchangeRanks(int world_size, size_t arena_bytes) : world_size_(world_size) {
  static_assert(sizeof(Shared) <= 4096);
  num_bytes_ = 4096 + Exchange::channel_bytes() * static_cast<size_t>(world_size * world_size);
  void* const mapped =
      mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::byte*>(mapped);
  for (int rank = 0; rank < world_size; ++rank) {
    notes_.push_back(std::make_unique<Notes>(*reinterpret_cast<Shared*>(memory_), rank));
    regions_.push_back(std::make_unique<Regions>(rank));
    base::Fd fd;
    if (arena_bytes > 0) arenas_.push_back(SharedMemory::create(arena_bytes, &fd).value());
  }
  for (const auto& regions : regions_) regions->set_arenas(arenas_);
}

ExchangeRanks::~ExchangeRanks() { munmap(memory_, num_bytes_); }

std::byte* ExchangeRanks::channel(int source, int destination) const {
  return memory_ + 4096 + Exchange::channel_bytes() * static_cast<size_t>(source * world_size_ + destination);
}

std::unique_ptr<Exchange> ExchangeRanks::make(int rank, std::chrono::milliseconds timeout,
                                              const std::vector<int>& global_ranks) {
  return make_exchange({.rank = rank,
                        .world_size = world_size_,
                        .timeout = timeout,
                        .channel = [this](int source, int destination) { return channel(source, destination); },
                        .global_ranks = global_ranks,
                        .regions = regions_[static_cast<size_t>(rank)].get(),
                        .neighbors = notes_[static_cast<size_t>(rank)].get()});
}

void ExchangeRanks::set_lost(int rank, bool is_lost) {
  reinterpret_cast<Shared*>(memory_)->is_lost[rank].store(is_lost);
}
void ExchangeRanks::set_aborted(int rank) { reinterpret_cast<Shared*>(memory_)->is_aborted[rank].store(true); }
int ExchangeRanks::num_reports(int rank) const { return notes_[static_cast<size_t>(rank)]->num_reports.load(); }

void ExchangeRanks::run(const std::function<void(Exchange&, int)>& fn, std::chrono::milliseconds timeout) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size_; ++rank) {
    threads.emplace_back([&, rank] {
      auto exchange = make(rank, timeout);
      fn(*exchange, rank);
      exchange.reset();
      set_lost(rank);
    });
  }
  for (auto& thread : threads) thread.join();
}

pid_t ExchangeRanks::fork_rank(int rank, const std::function<void(Exchange&)>& fn) {
  std::cout.flush();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  {
    auto exchange = make(rank);
    fn(*exchange);
  }
  set_lost(rank);
  std::cout.flush();
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

void ExchangeRanks::kill_rank(int rank, pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  set_lost(rank);
}

void ExchangeRanks::expect_success(pid_t pid) {
  int status = -1;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

std::string wait_text(Exchange& exchange, const TransferPtr& transfer) {
  EXPECT_TRUE(exchange.wait(transfer));
  return text_of(transfer->failure());
}

void expect_done(Exchange& exchange, const TransferPtr& transfer) {
  EXPECT_EQ(wait_text(exchange, transfer), "success");
}

std::vector<uint8_t> pattern(size_t num_bytes, uint32_t seed) {
  std::vector<uint8_t> bytes(num_bytes);
  uint64_t state = seed * uint64_t{2654435761} + 12345;
  for (auto& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<uint8_t>(state >> 56);
  }
  return bytes;
}

}  // namespace cohort::shm
